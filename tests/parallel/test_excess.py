"""Excess moves: who gives up blocks, who takes them, and that the rank with the most never gets more."""

import numpy as np
import pytest

from regard.parallel.place import contiguous
from regard.parallel.work import LIMITS, rebalance


def test_a_block_that_fits_nowhere_leaves_the_room_to_others():
    """Block 0 is too large for every rank: block 1 still goes to the rank with the most room."""
    owner, pairs = np.array([0, 0, 0, 0, 1, 2]), np.array([60, 30, 30, 10, 5, 6])

    assert rebalance(owner, pairs, ranks=3).tolist() == [2, 1, 0, 0, 1, 2]


@pytest.mark.parametrize("limit", LIMITS.values())
@pytest.mark.parametrize("seed", range(10))
def test_the_rank_with_the_most_never_gets_more(seed, limit):
    """Of random work, also with blocks larger than the mean; only ranks above the limit give up blocks."""
    rng = np.random.default_rng(seed)
    ranks, pages = int(rng.integers(1, 20)), int(rng.integers(1, 300))
    pairs = rng.lognormal(8, rng.uniform(0, 2), pages).astype(np.int64)
    owner = contiguous(pairs, ranks)
    worker = rebalance(owner, pairs, ranks, limit)
    before, after = (np.bincount(of, pairs, ranks) for of in (owner, worker))

    assert after.max() <= before.max() and after.sum() == before.sum()
    assert (before[owner[owner != worker]] > limit * before.sum() / ranks).all()
