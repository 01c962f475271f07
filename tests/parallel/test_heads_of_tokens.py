"""Ranks that divide the heads of tokens, alone and on a mesh of rows × heads: the bits of one process."""

import pytest
import torch

import regard as rg
import regard.parallel as rp
from regard.language.checks.arguments import Arguments
from regard.parallel.context.attention import over_heads
from regard.parallel.exchange import Alone
from tests.parallel.ranks import on_ranks
from tests.parallel.steps import compared
from tests.support.refusals import refusing


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
