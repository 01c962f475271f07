"""Whole tables from the tokens that each rank holds: the array of one process, and its gradients."""

import ml_dtypes
import numpy as np
import pytest
import torch

import regard as rg
import regard.parallel as rp
from regard.common.errors import Refused
from regard.language.checks.arguments import Arguments
from regard.parallel.context.attention import over
from regard.parallel.whole_tables import gathered
from tests.parallel.ranks import on_ranks
from tests.support.engines import normal

TOKENS = 700  # six pages: of eight ranks, some are empty


def placed(ranks, **options):
    return rp.place(TOKENS, ranks=ranks, mask=rg.causal(), heads=4, key_heads=2, depth=8, dtype="float32", **options)


@pytest.mark.spread
@pytest.mark.parametrize("ranks", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("among", ["contiguous", "zigzag"])
@pytest.mark.parametrize("dtype", [np.bool_, np.int64, np.uint8, np.float16, ml_dtypes.bfloat16, np.float64])
def test_the_parts_of_all_ranks_are_the_whole(ranks, among, dtype):
    """On every rank, of any dtype, along any axis, empty parts too."""
    place = placed(ranks, among=[among])
    for axis, shape in ((0, (TOKENS,)), (1, (3, TOKENS, 2)), (-1, (2, 0, TOKENS))):
        array = np.random.default_rng(0).integers(0, 2, shape).astype(dtype)

        def work(transport, array=array, axis=axis):
            return gathered(transport, place.shard(array, axis=axis, rank=transport.rank), place, axis)

        for found in on_ranks(ranks, work):
            assert found.dtype == array.dtype and found.flags.c_contiguous
            np.testing.assert_array_equal(found, array)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("ranks", [2, 3, 8])
def test_rules_read_them_and_learned_parts_receive_their_gradients(ranks):
    """Documents, a learned gate of each key and a learned bias of each row: the bits of one process."""
    place = placed(ranks)
    document = torch.from_numpy(np.repeat([0, 1, 2], [100, 350, 250]))
    arrays = [torch.from_numpy(normal(heads, TOKENS, 8, seed=seed)) for seed, heads in enumerate((4, 2, 2))]
    gate, height = torch.from_numpy(normal(TOKENS, seed=7)), torch.from_numpy(normal(4, TOKENS, seed=8))

    def rules(document, gate, height):
        score = rg.score + rg.table(gate)[rg.key] * rg.table(height)[rg.head, rg.query]
        return {"mask": rg.causal() & rg.documents(document), "score": score}

    leaves = [each.clone().requires_grad_() for each in (*arrays, gate, height)]
    out = rg.attention(*leaves[:3], **rules(document, *leaves[3:]))
    out.square().sum().backward()

    def work(transport):
        parts = [
            place.shard(each, axis=axis, rank=transport.rank).clone().requires_grad_()
            for each, axis in zip((*arrays, gate, height), (1, 1, 1, 0, 1), strict=True)
        ]
        held = place.shard(document, axis=0, rank=transport.rank), *parts[3:]
        read = rules(*(gathered(transport, each, place, axis) for each, axis in zip(held, (0, 0, 1), strict=True)))
        found = over(transport, tuple(parts[:3]), place, Arguments(**read))[0]
        found.square().sum().backward()
        return found.detach(), *(each.grad for each in parts)

    for rank, found in enumerate(on_ranks(ranks, work)):
        wanted = out.detach(), *(each.grad for each in leaves)
        for one, other, axis in zip(found, wanted, (1, 1, 1, 1, 0, 1), strict=True):
            assert torch.equal(one, place.shard(other, axis=axis, rank=rank))


def test_what_differs_is_refused_on_every_rank():
    """Other tokens than those of the rank, other shapes, other dtypes, and what has no numbers."""
    place = placed(2)
    mine = [np.zeros(len(place.positions(rank))) for rank in range(2)]
    wrong = {
        "does not have the tokens of this rank": lambda rank: mine[rank][:-1] if rank else mine[rank],
        "the ranks disagree about the array": lambda rank: mine[rank].astype(np.float32) if rank else mine[rank],
        "the array has no numbers": lambda rank: mine[rank].astype(complex) if rank else mine[rank],
        "axis is out of range": lambda rank: np.float64(3) if rank else mine[rank],
    }
    for text, given in wrong.items():

        def work(transport, given=given):
            with pytest.raises(Refused) as refused:
                gathered(transport, given(transport.rank), place, 0)
            return str(refused.value)

        assert all(text in found for found in on_ranks(2, work)), text


@pytest.mark.parametrize("size", [TOKENS, 300_000])
def test_ranks_whose_tables_differ_are_named(size):
    """One other number in the table of a mask or a score, or in the sinks; of large ones, in what is compared."""
    place = placed(3)
    q, k = (np.zeros((heads, TOKENS, 8), np.float32) for heads in (4, 2))

    def error_of(transport, different):
        same, numbers = np.zeros(size), np.zeros(size)
        numbers[0] = transport.rank == 1
        level, gate = (numbers if different == each else same for each in ("level", "gate"))
        given = {
            "mask": rg.causal() & (rg.table(level, "level")[rg.key] < 9),
            "score": rg.score + rg.table(gate, "gate")[rg.query],
            "sinks": np.zeros(4) + (different == "sinks") * numbers[0],
        }
        mine = [place.shard(each, axis=1, rank=transport.rank) for each in (q, k, k)]
        try:
            over(transport, tuple(mine), place, Arguments(**given))
        except Refused as refused:
            return str(refused)
        return None

    for different in ("level", "gate", "sinks"):
        for found in on_ranks(3, lambda transport, different=different: error_of(transport, different)):
            assert found is not None and "the ranks disagree about the numbers of tables" in found
            of_others, of_rank_1 = found.split("rank 1: ")
            own = {part.split()[0]: part.split()[1] for part in of_rank_1.splitlines()[0].split(", ")}
            assert {name for name, value in own.items() if f"{name} {value}" not in of_others} == {different}
    assert on_ranks(3, lambda transport: error_of(transport, "nothing")) == [None] * 3
