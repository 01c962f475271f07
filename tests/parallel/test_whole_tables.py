"""Whole tables from the tokens that each rank holds: the array of one process, and its gradients."""

import ml_dtypes
import numpy as np
import pytest
import torch

import regard as rg
import regard.parallel as rp
from regard.language.checks.arguments import Arguments
from regard.parallel.context.attention import over
from tests.parallel.ranks import on_ranks
from tests.parallel.steps import compared
from tests.support.engines import normal
from tests.support.refusals import refusal

CAUSAL = rg.causal()

TOKENS = 700  # six pages: of eight ranks, some are empty


def placed(ranks, **options):
    return rp.place(TOKENS, ranks=ranks, mask=CAUSAL, heads=4, key_heads=2, depth=8, dtype="float32", **options)


@pytest.mark.spread
@pytest.mark.parametrize("ranks", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("dtype", [np.bool_, np.int64, ml_dtypes.bfloat16, np.float64])
def test_the_parts_of_all_ranks_are_the_whole(ranks, dtype):
    """On every rank, of any dtype, along any axis, empty parts too."""
    place = placed(ranks, among=["zigzag"])
    for axis, shape in ((0, (TOKENS,)), (1, (3, TOKENS, 2)), (-1, (2, 0, TOKENS))):
        array = np.random.default_rng(0).integers(0, 2, shape).astype(dtype)

        def work(transport, array=array, axis=axis):
            return rp.whole(place.shard(array, axis=axis, rank=transport.rank), place, axis=axis, group=transport)

        for found in on_ranks(ranks, work):
            assert found.dtype == array.dtype and found.flags.c_contiguous
            np.testing.assert_array_equal(found, array)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("ranks", [2, 3, 8])
def test_rules_read_them_and_learned_parts_receive_their_gradients(ranks):
    """Documents, a learned gate of each key and a learned bias of each row: the bits of one process."""
    document = np.repeat([0, 1, 2], [100, 350, 250])

    def rules(gate, height):
        score = rg.score + rg.table(gate)[rg.key] * rg.table(height)[rg.head, rg.query]
        return Arguments(CAUSAL & rg.documents(document), score)

    learned = [torch.from_numpy(normal(*shape)) for shape in ((TOKENS,), (4, TOKENS))]
    compared(ranks, None, (1, 4, 2, TOKENS, 8, 8), "float32", rules, learned, CAUSAL, axes=(0, 1))


def test_what_differs_is_refused_on_every_rank():
    """Other tokens than those of the rank, other shapes, other dtypes, and what has no numbers."""
    place = placed(2)
    first, mine = (np.zeros(len(place.positions(rank))) for rank in range(2))
    for text, wrong in {
        "does not have the tokens of this rank": mine[:-1],
        "the ranks disagree about the array": mine.astype(np.float32),
        "the array has no numbers": mine.astype(complex),
        "axis is out of range": np.float64(3),
    }.items():
        parts = first, wrong
        found = on_ranks(2, lambda each, parts=parts: refusal(lambda: rp.whole(parts[each.rank], place, group=each)))
        assert all(text in each for each in found), found


@pytest.mark.parametrize("size", [TOKENS, 300_000])
def test_ranks_whose_tables_differ_are_named(size):
    """One other number in the table of a mask or a score, or in the sinks; of large ones, in what is compared."""
    place = placed(3)

    def error_of(transport, different):
        own = {name: np.zeros(count) for name, count in (("level", size), ("gate", size), ("sinks", 4))}
        if transport.rank == 1 and different:
            own[different][0] = 1
        mask = CAUSAL & (rg.table(own["level"], "level")[rg.key] < 9)
        score = rg.score + rg.table(own["gate"], "gate")[rg.query]
        rows = len(place.positions(transport.rank))
        arrays = tuple(np.zeros((heads, rows, 8), np.float32) for heads in (4, 2, 2))
        return refusal(over, transport, arrays, place, Arguments(mask, score, sinks=own["sinks"]))

    for different in ("level", "gate", "sinks"):
        for found in on_ranks(3, lambda transport, different=different: error_of(transport, different)):
            assert "the ranks disagree about the numbers of tables" in found
            of_others, of_rank_1 = found.split("rank 1: ")
            own = dict(part.split()[:2] for part in of_rank_1.splitlines()[0].split(", "))
            assert {name for name, value in own.items() if f"{name} {value}" not in of_others} == {different}
    assert on_ranks(3, lambda transport: error_of(transport, None)) == [None] * 3
