"""Attention over simulated ranks: results and gradients have the bits of one process, for any rules and placement."""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import regard as rg
import regard.parallel as rp
from regard.language.checks.arguments import Arguments
from regard.parallel.context import on_devices
from regard.parallel.context.attention import over
from regard.parallel.place import LAYOUTS
from tests.parallel.ranks import on_ranks
from tests.support.lanes import examples

torch = pytest.importorskip("torch")
PLACEMENTS = [*LAYOUTS, "excess"]
DTYPES = {"float32": np.float32, "bfloat16": ml_dtypes.bfloat16, "float16": np.float16}


def tensors(rng, shapes, dtype):
    """Normal tensors of a dtype."""
    return [torch.from_numpy(rng.standard_normal(shape, np.float32)).to(getattr(torch, dtype)) for shape in shapes]


def equal(one, other):
    """Whether two tensors are equal; NaN equals NaN."""
    return torch.equal(one.isnan(), other.isnan()) and torch.equal(one.nan_to_num(), other.nan_to_num())


def alone(q, k, v, dout, dlse, arguments, learned):
    """Results and gradients of one process: out, lse, dq, dk, dv, and those of what else is learned."""
    leaves = [each.clone().requires_grad_() for each in (q, k, v)]
    given = {name: value for name, value in arguments._asdict().items() if name != "query_start"}
    out, lse = rg.attention_with_lse(*leaves, **given)
    torch.autograd.backward([out, lse], [dout, dlse])
    found = [out.detach(), lse.detach(), *(each.grad for each in leaves), *(each.grad for each in learned)]
    for each in learned:
        each.grad = None
    return found


def compared(ranks, placement, shape, dtype, rules, seed=0, mask_of_place=None):
    """Fails unless every rank has the bits of one process. rules(rng) -> (arguments, tensors that are learned)."""
    rng = np.random.default_rng(seed)
    B, H, G, N, D, E = shape
    q, k, v = tensors(rng, [(B, H, N, D), (B, G, N, D), (B, G, N, E)], dtype)
    dout, dlse = tensors(rng, [(B, H, N, E), (B, H, N)], dtype)
    dlse = dlse.float()
    arguments, learned = rules(rng)
    expected = alone(q, k, v, dout, dlse, arguments, learned)
    among = None if placement is None else (placement,)
    mask = arguments.mask if mask_of_place is None else mask_of_place
    place = rp.place(N, ranks=ranks, mask=mask, heads=H, key_heads=G, depth=D, value_depth=E, among=among)

    def work(transport):
        rank = transport.rank
        mine = [place.shard(each, axis=2, rank=rank) for each in (q, k, v, dout, dlse)]
        leaves = [each.clone().requires_grad_() for each in mine[:3]]
        others = [each.detach().clone().requires_grad_() for each in learned]
        again = dict(zip(map(id, learned), others, strict=True))
        own = rules(np.random.default_rng(0), again)[0] if learned else arguments
        out, lse = over(transport, tuple(leaves), place, own)
        torch.autograd.backward([out, lse], mine[3:])
        with torch.no_grad():
            plain = over(transport, tuple(leaves), place, own)
        return out.detach(), lse.detach(), plain, [each.grad for each in leaves], [each.grad for each in others]

    for rank, (out, lse, plain, gradients, others) in enumerate(on_ranks(ranks, work)):
        mine = [place.shard(each, axis=2, rank=rank) for each in expected[:5]]
        for name, one, other in zip(["out", "lse", "dq", "dk", "dv"], (out, lse, *gradients), mine, strict=True):
            assert equal(one, other), (rank, name, (one != other).sum())
        assert equal(plain[0], out) and equal(plain[1], lse), rank
        for one, other in zip(others, expected[5:], strict=True):
            assert equal(one, other), rank


def documents(rng, again=None):
    """Packed documents, ALiBi, GQA."""
    return Arguments(rg.causal() & rg.documents(lengths=[500, 1700, 800]), rg.alibi(4)), []


@pytest.mark.spread
@pytest.mark.parametrize("placement", PLACEMENTS)
@pytest.mark.parametrize("ranks", [1, 2, 3, 5, 8])
def test_law_11_over_ranks(ranks, placement):
    """Documents of odd lengths under every placement."""
    dtype = list(DTYPES)[ranks % 3]
    compared(ranks, placement, (1, 4, 2, 3000, 16, 24), dtype, documents)


def test_dropout_sinks_and_windows():
    """Dropout counts positions and heads of the whole call; gradients of sinks are sums over the rows of all ranks."""

    sinks = []

    def rules(rng, again=None):
        if not sinks:
            sinks.append(torch.linspace(-1, 1, 4).requires_grad_())
        made = sinks[0] if again is None else again[id(sinks[0])]
        return Arguments(rg.causal() & rg.window(700), None, sinks=made, dropout=0.2, seed=5), sinks

    compared(3, "striped", (2, 4, 2, 5000, 16, 8), "float32", rules)


@pytest.mark.parametrize("placement", ["zigzag", "striped"])
def test_learned_tables(placement):
    """A table of distances that is learned: every rank has its whole gradient."""
    kept = []

    def rules(rng, again=None):
        if not kept:
            kept.append(torch.from_numpy(rng.standard_normal((4, 601), np.float32)).requires_grad_())
        bias = kept[0] if again is None else again[id(kept[0])]
        score = rg.score + rg.table(bias)[rg.head, rg.query - rg.key + 300]
        return Arguments(rg.causal() & rg.window(300), score), kept

    compared(3, placement, (2, 4, 2, 2500, 16, 8), "float32", rules)


def test_a_placement_for_another_mask():
    """A model uses several masks over one placement: what travels is what the mask of the call visits."""
    compared(4, None, (1, 2, 1, 2000, 8, 8), "float32", lambda rng, again=None: (Arguments(), []), 0, rg.window(200))


@pytest.mark.parametrize("tokens", [1, 5, 127, 128, 129, 1025])
def test_few_tokens_and_empty_ranks(tokens):
    """Ranks without tokens take part; the last page may be short."""
    compared(5, "contiguous", (1, 2, 2, tokens, 8, 8), "bfloat16", lambda rng, again=None: (Arguments(rg.causal()), []))


def test_masks_that_depend_on_batch_and_head():
    """Rules see batch entries and heads of the whole call, although heads travel in stripes."""
    mask = (rg.key <= rg.query) & (rg.key > rg.query - 100 * (rg.head + 1) - 400 * rg.batch)
    compared(3, "zigzag", (2, 4, 4, 1500, 8, 8), "float32", lambda rng, again=None: (Arguments(mask, rg.alibi(4)), []))


def test_not_a_number_stays_where_it_is():
    """NaN and infinite keys reach the rows of one process, and no others."""
    rng = np.random.default_rng(0)
    q, k, v = tensors(rng, [(1, 1, 700, 8)] * 3, "float32")
    k[0, 0, 300], v[0, 0, 400, 2] = float("nan"), float("inf")
    expected = rg.attention(q, k, v, mask=rg.causal() & rg.window(100))
    place = rp.place(700, ranks=3, mask=rg.causal() & rg.window(100))

    def work(transport):
        mine = tuple(place.shard(each, axis=2, rank=transport.rank) for each in (q, k, v))
        return over(transport, mine, place, Arguments(rg.causal() & rg.window(100)))[0]

    for rank, found in enumerate(on_ranks(3, work)):
        assert equal(found, place.shard(expected, axis=2, rank=rank))


MASKS = st.sampled_from(
    [
        None,
        rg.causal(),
        rg.causal() & rg.window(150),
        rg.prefix(200),
        (rg.query + rg.key) % 3 == 0,
        rg.key >= rg.query,
        (rg.key // 64 == rg.query // 64) | (rg.key < 8),
    ]
)
SCORES = st.sampled_from([None, rg.alibi(2), rg.softcap(5.0)])


@pytest.mark.slow
@examples(15)
@given(
    MASKS, SCORES, st.integers(1, 2600), st.integers(1, 9), st.sampled_from(PLACEMENTS), st.sampled_from(list(DTYPES))
)
def test_any_rule_on_any_number_of_ranks(mask, score, tokens, ranks, placement, dtype):
    """Random combinations of rules, lengths, ranks and placements."""
    compared(ranks, placement, (1, 2, 1, tokens, 8, 8), dtype, lambda rng, again=None: (Arguments(mask, score), []))


def test_on_gpus_what_would_be_wrong_is_refused():
    """Sums over ranks of gradients of sinks and tables, and dropout of later heads; what is right is prepared."""
    place = rp.place(600, ranks=2, mask=rg.causal())
    q = torch.zeros(4, len(place.positions(0)), 8)
    sinks, table = torch.zeros(4, requires_grad=True), torch.zeros(4, requires_grad=True)
    wrong = [
        (Arguments(rg.causal(), sinks=sinks), "gradients of tables and sinks"),
        (Arguments(rg.causal(), rg.score + rg.table(table)[rg.head]), "gradients of tables and sinks"),
        (Arguments(rg.causal(), dropout=0.1, seed=1, head_start=4), "counts dropout from batch_start and head_start"),
    ]
    for arguments, text in wrong:
        with pytest.raises(rg.Refused, match=text):
            on_devices.checked("attention", 0, place, (q, q, q), arguments)
    prepared, _ = on_devices.checked("attention", 0, place, (q, q, q), Arguments(rg.causal(), sinks=sinks.detach()))
    assert len(prepared.positions) == q.shape[1]
