"""Sums over ranks: the fold in the order of ranks, with the same bits everywhere; what cannot be summed is refused."""

import pytest
import torch

from regard.parallel.exchange import Alone
from regard.parallel.head_parallel import Ranks
from regard.parallel.sequence import add
from tests.parallel.ranks import on_ranks
from tests.support.refusals import refusal

SHAPES = [(3, 5), (), (0, 4), (17,), (2,)]


@pytest.mark.parametrize("ranks", [1, 2, 3, 5])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_sums_are_folds_in_the_order_of_ranks(ranks, dtype):
    """Each number is added in float64, from rank 0 on, and rounded once; transposed tensors are summed in place."""
    torch.manual_seed(ranks)
    held = [[(torch.randn(shape) * 1e3**rank).to(dtype) for shape in SHAPES] for rank in range(ranks)]
    expected = [sum(part.double() for part in parts).to(dtype) for parts in zip(*held, strict=True)]

    def work(transport):
        first, *others = (each.clone() for each in held[transport.rank])
        mixed = torch.tensor(float(transport.rank), dtype=torch.float32)
        tensors = [first.t().contiguous().t(), *others, mixed]
        add(transport, tensors, "sums")
        return tensors

    for *found, other in on_ranks(ranks, work):
        assert all(map(torch.equal, found, expected)) and other == sum(range(ranks))


def test_a_single_number_has_any_stride():
    """As in a column of a matrix with one row."""
    assert Ranks(Alone()).total("sums", torch.arange(4.0)[1::2][:1], [0]).tolist() == [1.0]


def test_what_cannot_be_summed_is_refused_on_every_rank():
    """Integers on one rank, something else than a tensor, and shapes that differ."""
    zeros = torch.zeros(3)
    for wrong, text in (
        (zeros.long(), "torch.int64 on cpu"),
        (None, "NoneType"),
        (torch.zeros(4), "disagree about the tensors\n  given     ranks 0, 2: float32 [3]; rank 1: float32 [4]"),
    ):
        found = on_ranks(3, lambda rank, wrong=wrong: refusal(add, rank, [wrong if rank.rank == 1 else zeros], "sums"))
        assert all(text in each for each in found), found
