"""Attention over simulated ranks: results and gradients have the bits of one process, for any rules and placement."""

import sys

import pytest
import torch

import regard as rg
import regard.parallel as rp
from regard.language.checks.arguments import Arguments
from regard.parallel.context import on_devices
from regard.parallel.context.attention import over_heads
from regard.parallel.context.prepare import given_dtensors
from regard.parallel.exchange import Alone
from regard.parallel.place import LAYOUTS
from tests.parallel.ranks import on_ranks
from tests.parallel.steps import compared
from tests.support.lanes import by_name, sweep
from tests.support.refusals import refusing

CAUSAL = rg.causal()

PLACEMENTS = [*LAYOUTS, "excess"]
DTYPES = ["float32", "bfloat16", "float16"]


RULES = {
    "documents": Arguments(CAUSAL & rg.documents(lengths=[500, 1100, 300]), rg.alibi(4)),
    "nothing": Arguments(),
    "prefix": Arguments(rg.prefix(200), rg.softcap(5.0)),
    "thirds": Arguments((rg.query + rg.key) % 3 == 0),
    "later keys": Arguments(rg.key >= rg.query, rg.alibi(4)),
    "blocks": Arguments((rg.key // 64 == rg.query // 64) | (rg.key < 8), rg.softcap(5.0)),
}


@pytest.mark.spread
@pytest.mark.parametrize("placement", PLACEMENTS)
@pytest.mark.parametrize("ranks", [1, 2, 3, 5, 9])
@by_name("rules", RULES)
def test_law_11_over_ranks(ranks, placement, rules):
    """Packed documents of odd lengths and other masks, scores, and grouped queries under every placement."""
    compared(ranks, placement, (1, 4, 2, 1900, 16, 24), DTYPES[ranks % 3], lambda: rules)


BY_HEAD = (rg.key <= rg.query) & (rg.key > rg.query - 100 * (rg.head + 1) - 400 * rg.batch)
WINDOW = CAUSAL & rg.window(300)


def dropped(sinks):
    """Dropout counts positions and heads of the whole call; gradients of sinks are sums over the rows of all ranks."""
    return Arguments(CAUSAL & rg.window(700), sinks=sinks, dropout=0.2, seed=5)


def of_distances(bias):
    """A table of distances that is learned: every rank has its whole gradient."""
    return Arguments(WINDOW, rg.score + rg.table(bias)[rg.head, rg.query - rg.key + 300])


def plain():
    return Arguments(CAUSAL)


@pytest.mark.parametrize(
    ("ranks", "placement", "shape", "rules", "more"),
    [
        (3, "striped", (2, 4, 2, 5000, 16, 8), dropped, {"learned": [torch.linspace(-1, 1, 4)]}),
        (3, "zigzag", (2, 4, 2, 2500, 16, 8), of_distances, {"learned": [torch.randn(4, 601)]}),
        # Rules see batch entries and heads of the whole call, although heads travel in stripes.
        (3, "zigzag", (2, 4, 4, 1500, 8, 8), lambda: Arguments(BY_HEAD, rg.alibi(4)), {}),
        # A model uses several masks over one placement: what travels is what the mask of the call visits.
        (4, None, (1, 2, 1, 2000, 8, 8), lambda: Arguments(), {"mask": rg.window(200)}),
        # NaN and infinite keys reach the rows of one process, and no others.
        (3, "contiguous", (1, 1, 1, 700, 8, 8), lambda: Arguments(WINDOW), {"poison": True}),
        # Ranks without tokens take part; the last page may be short.
        *((5, "contiguous", (1, 2, 2, tokens, 8, 8), plain, {}) for tokens in (1, 128, 129)),
        *sweep(*((5, "contiguous", (1, 2, 2, tokens, 8, 8), plain, {}) for tokens in (127, 1025))),
    ],
)
def test_rules_over_ranks(ranks, placement, shape, rules, more):
    """Everything that a call may have has the bits of one process, gradients of what is learned too."""
    compared(ranks, placement, shape, "float32", rules, **more)


def test_on_gpus_what_would_be_wrong_is_refused():
    """Sums over ranks of gradients of sinks and tables, and dropout of later heads; what is right is prepared."""
    place = rp.place(600, ranks=2, mask=CAUSAL)
    q, learned = torch.zeros(4, len(place.positions(0)), 8), torch.zeros(4, requires_grad=True)

    def prepared(**rules):
        return on_devices.checked("attention", 0, place, (q, q, q), Arguments(CAUSAL, **rules))[0]

    for rules, text in (
        ({"sinks": learned}, "gradients of tables and sinks"),
        ({"score": rg.score + rg.table(learned)[rg.head]}, "gradients of tables and sinks"),
        ({"dropout": 0.1, "seed": 1, "head_start": 4}, "counts dropout from batch_start and head_start"),
    ):
        with refusing(text):
            prepared(**rules)
    assert len(prepared(sinks=learned.detach()).positions) == q.shape[1]


def test_while_another_thread_imports_dtensors(monkeypatch):
    """A module that is imported halfway has no class of them."""
    monkeypatch.setitem(sys.modules, "torch.distributed.tensor", sys)
    assert not given_dtensors("attention", (torch.zeros(2),))


# ---- ranks that divide the heads -------------------------------------------------------------------------------------


@pytest.mark.one_in(2)
@pytest.mark.parametrize(("rows", "heads"), [(1, 2), (1, 3), (2, 2), (3, 1)])
def test_the_bits_of_one_process(rows, heads):
    """Uneven groups (five over two or three ranks), documents, scores by head, dropout and sinks."""
    mask = rg.causal() & rg.documents(lengths=[600, 900])

    def rules(sinks):
        return Arguments(mask, rg.alibi(10), sinks=sinks, dropout=0.1, seed=4)

    compared(rows, "zigzag", (1, 10, 5, 1500, 16, 8), "float32", rules, [torch.linspace(-1, 1, 10)], parts=heads)


def test_more_ranks_than_key_heads():
    """A key head goes to two ranks, and its gradient is the sum of theirs: equal to a rounding."""
    compared(1, "zigzag", (1, 4, 1, 700, 8, 8), "float32", lambda: Arguments(rg.causal()), parts=3)


def test_what_does_not_fit_is_refused_on_all():
    """Too many ranks, other tokens, and tables that are learned."""
    place = rp.place(600, ranks=1)
    table = rg.table(torch.zeros(4, requires_grad=True))

    def work(others):
        learned = Arguments(score=rg.score + table[rg.head])
        for shape, rules, text in (
            ((2, 200, 8), Arguments(), "more ranks than query heads"),
            ((3, 200 - others.rank, 8), Arguments(), "does not have the tokens of this rank"),
            ((4, 200, 8), learned, "tables are not learned where ranks divide the heads"),
        ):
            with refusing(text):
                over_heads(Alone(), others, (torch.zeros(shape, requires_grad=True),) * 3, place, rules)

    on_ranks(3, work)
