"""Law 11: sums over keys are a binary tree over pieces of 1024 positions, in every path of the compiled engine.

Every test has more than 3072 keys: below that a tree and a sum piece after piece are the same.
"""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import regard as rg
from regard.engines.jit.code.target import limited
from regard.engines.jit.kernels.forward import PIECE
from regard.engines.jit.run import threads
from tests.support.engines import DTYPES, DTYPES_IN_CI, normal, qkv, same_bits
from tests.support.machine import OFFERED, each_isa
from tests.support.strategies import LAYOUTS, Dims, laid_out, masks, scores

EACH_DTYPE = pytest.mark.parametrize("dtype", DTYPES_IN_CI, ids=lambda dtype: np.dtype(dtype).name)
# The third leaves whole pieces out, the fourth most of them; in the fifth many rows attend to nothing.
RULES = {
    "dense": {},
    "causal": {"mask": rg.causal()},
    "gaps": {"mask": rg.causal() & ((rg.key // 1500) % 3 != 1), "score": rg.softcap(4.0)},
    "sparse": {"mask": rg.causal() & (rg.window(700) | rg.global_tokens(3))},
    "empty": {"mask": (rg.query - rg.key > 4000) & (rg.query % 3 != 0)},
    "dropout": {"mask": rg.causal(), "dropout": 0.3, "seed": 5},
}
each_rule = pytest.mark.parametrize("rule", RULES.values(), ids=RULES)


def case(dtype=np.float32, K=9000, Q=70, H=4, G=2, D=16, E=16, B=1):
    return qkv(H=H, Q=Q, K=K, D=D, E=E, G=G, B=B, dtype=dtype)


def same_results(one, other):
    for old, new in zip(one, other, strict=True):
        same_bits(old, new)


# ---- the tree --------------------------------------------------------------------------------------------------------


def leaf(q, k, v, number: int, rule: dict) -> rg.Part:
    """The piece with this number, computed alone."""
    here = (rg.key >= number * PIECE) & (rg.key < (number + 1) * PIECE)
    return rg.attention_part(q, k, v, **rule | {"mask": here & rule.get("mask", rg.everything())})


def tree(leaves: list, merge) -> object:
    """The law, written out: the leaves, padded with None to a power of two, merged two by two."""
    size = 1 << max(len(leaves) - 1, 0).bit_length()
    level = leaves + [None] * (size - len(leaves))
    while len(level) > 1:
        level = [merge(*pair) if pair[1] is not None else pair[0] for pair in zip(level[::2], level[1::2])]
    return level[0]


@pytest.mark.spread
@EACH_DTYPE
@each_rule
@pytest.mark.parametrize("K", [3073, 5000, 9000])
def test_law_11_a_call_is_the_tree_of_its_pieces(dtype, rule, K):
    """Every piece alone, empty ones among them, merged two by two as the law says, has the bits of the call."""
    q, k, v = case(dtype, K=K)
    pieces = [leaf(q, k, v, number, rule) for number in range(-(-K // PIECE))]
    found = tree(pieces, lambda left, right: rg.merge([left, right]))
    whole = rg.attention_with_lse(q, k, v, **rule)
    same_results(whole, found.result())
    same_results(whole, rg.merge(pieces).result())
    same_results(whole, rg.attention_part(q, k, v, **rule).result())


def test_the_tree_is_not_a_sum_piece_after_piece():
    """The other order has other bits, so the tests above can fail."""
    q, k, v = case()
    pieces = [leaf(q, k, v, number, {}) for number in range(9)]
    found = pieces[0]
    for piece in pieces[1:]:
        found = rg.merge([found, piece])
    assert (rg.attention(q, k, v) != found.result()[0]).any()


@settings(max_examples=5)
@given(st.data())
def test_law_11_random_rules_are_trees(data):
    """The same for random masks and scores, with gaps, empty rows and any start."""
    random_rules_are_trees(data)


@pytest.mark.sweep
@settings(max_examples=60)
@given(st.data())
def test_law_11_many_random_rules_are_trees(data):
    """More of them."""
    random_rules_are_trees(data)


def random_rules_are_trees(data):
    dims = Dims(B=2, G=1, H=2, Q=data.draw(st.integers(1, 40)), K=data.draw(st.integers(3000, 6000)), D=4, E=4)
    shapes = (2, 2, dims.Q, 4), (2, 1, dims.K, 4), (2, 1, dims.K, 4)
    q, k, v = (normal(*shape, seed=seed) for seed, shape in enumerate(shapes))
    gap = (rg.key // data.draw(st.sampled_from((128, 1000, 1024, 2048)))) % data.draw(st.integers(2, 5)) != 0
    mask = data.draw(st.sampled_from((gap, rg.causal() & gap, ~gap | rg.window(900)))) | data.draw(masks(dims, 1))
    rule = {"mask": mask, "score": data.draw(scores(dims)), "query_start": data.draw(st.integers(0, dims.K))}
    pieces = [leaf(q, k, v, number, rule) for number in range(-(-dims.K // PIECE))]
    whole = rg.attention_with_lse(q, k, v, **rule)
    same_results(whole, tree(pieces, lambda left, right: rg.merge([left, right])).result())
    row = data.draw(st.integers(0, dims.Q - 1))
    alone = rg.attention_with_lse(q[:, :, [row]], k, v, **rule | {"query_start": rule["query_start"] + row})
    same_results([each[:, :, [row]] for each in whole], alone)


@settings(max_examples=20)
@given(st.lists(st.integers(0, 8), max_size=3, unique=True), st.booleans())
def test_law_11_subtrees_may_be_computed_anywhere(cuts, with_sinks):
    """Key ranges whose borders are multiples of 1024: the subtrees inside each range, merged by the tree."""
    q, k, v = case(K=8192, Q=5)
    sinks = normal(4, 2, seed=3) if with_sinks else None
    leaves: list = []
    for first, last in itertools.pairwise(sorted({0, *cuts, 8})):
        k_, v_ = k[:, :, : last * PIECE], v[:, :, : last * PIECE]  # a machine that holds no later keys
        for number in range(first, last):
            here = rg.attention_part(q, k_, v_, mask=rg.key // PIECE == number, query_start=8192 - 5)
            leaves.append(here)
    found = tree(leaves, lambda left, right: rg.merge([left, right])).result(sinks)
    same_results(rg.attention_with_lse(q, k, v, sinks=sinks), found)


@pytest.mark.parametrize("size", [1024, 2048, 4096])
def test_law_11_each_process_holds_some_keys(size):
    """Parts of equal size from position 0, each with its own keys alone and anything else in the other rows."""
    q, k, v = case(K=9000, Q=33)
    rule = {
        "mask": (rg.key >= 2500) & rg.causal(),
        "score": rg.score + rg.sin(0.01 * rg.key),
        "dropout": 0.2,
        "seed": 1,
    }
    parts = []
    for first in range(0, 9000, size):
        own = slice(first, first + size)
        held = [np.full_like(each, np.nan) for each in (k, v)]
        for each, whole in zip(held, (k, v)):
            each[:, :, own] = whole[:, :, own]
        here = (rg.key >= first) & (rg.key < first + size)
        parts.append(rg.attention_part(q, *held, **rule | {"mask": rule["mask"] & here}))
    same_results(rg.attention_with_lse(q, k, v, **rule), rg.merge(parts).result())


# ---- what may not change a bit ---------------------------------------------------------------------------------------


@pytest.mark.spread
@EACH_DTYPE
@each_rule
@pytest.mark.parametrize("Q", [1, 3, 70])
def test_law_11_threads(dtype, rule, Q):
    """One thread, two, three, five; few rows share their pieces among the threads, one thread takes them in order."""
    q, k, v = case(dtype, Q=Q)
    results = []
    for count in (1, 2, 3, 5):
        with threads.limit(count):
            results.append(rg.attention_with_lse(q, k, v, **rule))
    for other in results[1:]:
        same_results(results[0], other)


@pytest.mark.spread
@EACH_DTYPE
@each_rule
def test_law_11_rows_alone_and_in_chunks(dtype, rule):
    """Rows alone, in chunks of any size, and over the keys so far."""
    q, k, v = case(dtype, K=6000, Q=5999)
    whole = rg.attention_with_lse(q, k, v, **rule)
    for first, last in itertools.pairwise((0, 1, 40, 1023, 1024, 3500, 5998, 5999)):
        part = rg.attention_with_lse(q[:, :, first:last], k, v, query_start=1 + first, **rule)
        same_results([each[:, :, first:last] for each in whole], part)
    if rule.get("mask") is not None:  # every rule but the dense one looks back only
        for first, last in ((1500, 1501), (3100, 3200), (5000, 5999)):
            seen = slice(0, last + 1)
            part = rg.attention_with_lse(q[:, :, first:last], k[:, :, seen], v[:, :, seen], **rule)
            same_results([each[:, :, first:last] for each in whole], part)


@pytest.mark.spread
@EACH_DTYPE
@each_rule
def test_law_11_batch_heads_and_layouts(dtype, rule):
    """An entry of the batch, a group of heads, other strides."""
    q, k, v = case(dtype, B=2, K=5000, Q=20)
    whole = rg.attention_with_lse(q, k, v, **rule)
    for layout in set(LAYOUTS) - {"broadcast"}:
        same_results(whole, rg.attention_with_lse(*(laid_out(each, layout) for each in (q, k, v)), **rule))
    for b, g in itertools.product(range(2), range(2)):
        some = slice(2 * g, 2 * g + 2)
        alone = q[[b], some], k[[b], [g]][:, None], v[[b], [g]][:, None]
        starts = {"batch_start": b, "head_start": 2 * g}
        same_results([each[[b], some] for each in whole], rg.attention_with_lse(*alone, **starts, **rule))
        same_results([each[[b], some] for each in whole], rg.attention_part(*alone, **starts, **rule).result())


@pytest.mark.spread
@EACH_DTYPE
@pytest.mark.parametrize("rule", [RULES[name] for name in ("causal", "gaps", "sparse", "empty")])
def test_law_11_decoding_over_pages(dtype, rule):
    """Token by token and in chunks over a cache, whose pages lie anywhere: the bits of one prefill."""
    q, k, v = case(dtype, K=5300, Q=5300, B=2)
    whole = rg.attention_with_lse(q, k, v, **rule)
    cache = rg.KVCache(2, 16, batch=2, dtype=np.dtype(dtype).name)
    borders = (0, 700, 701, 3000, 4090, 4096, 4097, 4098, 5000, 5299, 5300)
    for first, last in itertools.pairwise(borders):
        cache.append(k[:, :, first:last], v[:, :, first:last])
        part = cache.attend_with_lse(q[:, :, first:last], **rule)
        same_results([each[:, :, first:last] for each in whole], part)


@pytest.mark.parametrize("window", [3500, 5000])
def test_law_11_decoding_over_a_ring(window):
    """A ring forgets keys and not positions, so the tree stays where it is."""
    q, k, v = case(K=9000, Q=9000)
    whole = rg.attention_with_lse(q, k, v, mask=rg.window(window))
    cache = rg.KVCache(2, 16, window=window)
    for first, last in itertools.pairwise((0, 4000, 4001, 6100, 8191, 8192, 8193, 8999, 9000)):
        cache.append(k[:, :, first:last], v[:, :, first:last])
        part = cache.attend_with_lse(q[:, :, first:last])
        same_results([each[:, :, first:last] for each in whole], part)


@pytest.mark.sweep
@each_isa
def test_law_11_on_every_instruction_set(isa):
    """The tree, the threads and the rows alone, compiled for each instruction set that runs here."""
    q, k, v = case(K=5000, Q=9)
    rule = RULES["gaps"]
    with limited(isa):
        whole = rg.attention_with_lse(q, k, v, **rule)
        same_results(whole, tree([leaf(q, k, v, n, rule) for n in range(5)], lambda *two: rg.merge(two)).result())
        with threads.limit(1):
            same_results(whole, rg.attention_with_lse(q, k, v, **rule))
        alone = rg.attention_with_lse(q[:, :, [4]], k, v, query_start=4995, **rule)
        same_results([each[:, :, [4]] for each in whole], alone)


@pytest.mark.one_in(4)
@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: np.dtype(dtype).name)
def test_law_11_between_instruction_sets(dtype):
    """Instruction sets with fused multiply-add have the same bits, unless they multiply pairs of bfloat16."""
    fused = [isa for isa in OFFERED if isa in ("avx512bf16", "avx512", "avx2")]
    if np.dtype(dtype).name == "bfloat16":
        fused = [isa for isa in fused if isa != "avx512bf16"]
    if len(fused) < 2:
        pytest.skip(f"this machine offers {', '.join(OFFERED)}: nothing to compare")
    q, k, v = case(dtype, K=5000, Q=20)
    rule = {"mask": rg.causal(), "score": rg.softcap(5.0)}
    results = []
    for isa in fused:
        with limited(isa):
            results.append(rg.attention_with_lse(q, k, v, **rule))
    for other in results[1:]:
        same_results(results[0], other)


# ---- values ----------------------------------------------------------------------------------------------------------


def test_an_empty_part_changes_nothing():
    """Merging with a part that attends to no key is exact on either side, and nothing but such parts is empty."""
    q, k, v = case(K=100)
    part = rg.attention_part(q, k, v, mask=rg.causal())
    nothing = rg.attention_part(q, k, v, mask=rg.key < 0)
    for merged in ([part], [nothing, part], [part, nothing], [nothing, part, nothing, nothing]):
        found = rg.merge(merged)
        for name in ("maximum", "total", "values"):
            same_bits(getattr(found, name), getattr(part, name))
    out, lse = rg.merge([nothing, nothing]).result()
    same_bits(out, np.zeros_like(out))
    assert np.isneginf(lse).all()


def test_zeros_are_positive():
    """A sum that underflowed below zero is 0 and not -0: whether it is merged or rescaled does not show."""
    q = np.ones((1, 1, 1, 4), np.float32)
    k, v = (np.zeros((1, 1, 5000, 4), np.float32) for _ in range(2))
    v[:, :, :100] = -1e-30
    for loud in (200, 1100, 4500):  # later keys, in another block or piece, whose scores are larger by 100
        k[:, :, loud:] = 50
        out = rg.attention(q, k, v)
        same_bits(out, np.zeros_like(out))
        parts = [leaf(q, k, v, number, {}) for number in range(5)]
        same_bits(rg.merge(parts).result()[0], out)


def test_what_is_attended_shows_in_a_part():
    """A NaN or an infinity that a row attends to shows in the merged result; one that it does not attend to cannot."""
    q, k, v = case(K=5000, Q=2)
    v[:, :, 4500] = np.nan
    k[:, :, 1100] = np.inf
    for mask, finite in ((rg.everything(), False), ((rg.key != 4500) & (rg.key != 1100), True)):
        whole = rg.attention_with_lse(q, k, v, mask=mask)
        parts = [leaf(q, k, v, number, {"mask": mask}) for number in range(5)]
        merged = rg.merge(parts).result()
        assert np.isfinite(merged[0]).all() == np.isfinite(whole[0]).all() == finite
        for one, other in zip(whole, merged):
            np.testing.assert_array_equal(one, other)


def test_a_tree_of_1024_pieces_is_more_accurate_than_a_sum_in_order():
    """Over a million keys, against float64: the error of the tree is below that of adding piece after piece."""
    K = 1024 * PIECE
    rng = np.random.default_rng(0)
    q, k = (rng.standard_normal((1, 1, rows, 4), dtype=np.float32) for rows in (4, K))
    v = rng.random((1, 1, K, 4), dtype=np.float32)
    exact, _ = rg.attention_with_lse(*(each.astype(np.float64) for each in (q, k, v)))
    part, pieces = 64 * PIECE, []
    for first in range(0, K, part):
        some = slice(first, first + part)
        for number in range(64):
            pieces.append(leaf(q, k[:, :, some], v[:, :, some], number, {}))
    in_order = pieces[0]
    for piece in pieces[1:]:
        in_order = rg.merge([in_order, piece])

    def error(found):
        return float(np.sqrt(np.mean(((found - exact) / exact) ** 2)))

    found = rg.attention(q, k, v)
    same_bits(found, rg.merge(pieces).result()[0])
    assert error(found) < error(in_order.result()[0])
