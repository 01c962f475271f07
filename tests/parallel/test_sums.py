"""Sums over ranks: the fold in the order of ranks, with the same bits everywhere; what cannot be summed is refused."""

import pytest
import torch

from regard.common.errors import Refused
from regard.parallel.sums import add
from tests.parallel.ranks import on_ranks

SHAPES = [(3, 5), (), (0, 4), (17,), (2,)]


@pytest.mark.parametrize("ranks", [1, 2, 3, 5])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_sums_are_folds_in_the_order_of_ranks(ranks, dtype):
    """Each number is added in float64, from rank 0 on, and rounded once; transposed tensors are summed in place."""
    random = torch.Generator().manual_seed(ranks)
    given = [
        [(torch.randn(shape, generator=random) * 1e3**rank).to(dtype) for shape in SHAPES] for rank in range(ranks)
    ]
    expected = []
    for each in zip(*given, strict=True):
        total = torch.zeros(each[0].shape, dtype=torch.float64)
        for part in each:
            total = total + part
        expected.append(total.to(dtype))

    def work(transport):
        tensors = [each.clone() for each in given[transport.rank]]
        first = tensors[0].t().contiguous().t()
        other = torch.tensor(float(transport.rank), dtype=torch.float32)
        add(transport, [first, *tensors[1:], other], "sums")
        return [first, *tensors[1:]], float(other)

    for found, other in on_ranks(ranks, work):
        assert all(torch.equal(one, two) for one, two in zip(found, expected, strict=True))
        assert other == sum(range(ranks))


def test_what_cannot_be_summed_is_refused_on_every_rank():
    """Integers on one rank, something else than a tensor, and shapes that differ."""

    def work(transport):
        found = []
        zeros = torch.zeros(3)
        for wrong in (torch.zeros(3, dtype=torch.int64), None, torch.zeros(4)):
            with pytest.raises(Refused) as refused:
                add(transport, [wrong if transport.rank == 1 else zeros], "sums")
            found.append(str(refused.value))
        return found

    for found in on_ranks(3, work):
        assert "torch.int64 on cpu" in found[0] and "NoneType" in found[1]
        assert (
            "the ranks disagree about the tensors\n  given     ranks 0, 2: float32 [3]; rank 1: float32 [4]" in found[2]
        )
