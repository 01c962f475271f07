"""Excess moves: tokens stay where they are; only blocks of rows above the mean are computed by another rank."""

from __future__ import annotations

import heapq

import numpy as np

# By the name of the candidate: the pairs, as a multiple of the mean, up to which a rank keeps and takes blocks. A rank
# that gives up much sends its pages to many others, so that moving less can take less time.
LIMITS = {"excess": 1.01, "excess-1.1": 1.1, "excess-1.3": 1.3, "excess-1.6": 1.6}


def moved(owner: np.ndarray, pairs: np.ndarray, ranks: int, limit: float = LIMITS["excess"]) -> np.ndarray:
    """The worker of each block of rows.

    owner: the rank that holds each block. pairs: of each block. limit: the pairs of a rank, as a multiple of the mean.

    Every rank above the limit gives up its blocks with the most pairs: those move the most work for the bytes of a
    query and an output, and they are often neighbors that read the same pages. They go, in order of position, to the
    ranks with the most room, one after another, so that neighbors arrive together and few ranks receive the same page.
    Nothing moves if the rank with the most pairs would not have fewer.

    >>> moved(np.array([0, 0, 1, 1]), np.array([1, 1, 1, 5]), ranks=2).tolist()
    [0, 0, 1, 1]
    >>> moved(np.array([0, 0, 1, 1]), np.array([1, 1, 3, 5]), ranks=2).tolist()
    [0, 0, 1, 0]
    """
    worker = owner.copy()
    load = np.bincount(owner, pairs, ranks)
    most = load.max()
    limit *= load.sum() / ranks
    given = _given(owner, pairs, load, limit)
    if not len(given):
        return worker
    load -= np.bincount(owner[given], pairs[given], ranks)
    takers = iter(np.argsort(load, kind="stable").tolist())
    taker, taken, rest = next(takers), 0, []
    for block in given.tolist():
        if taken and load[taker] + pairs[block] > limit:
            taker, taken = next(takers, taker), 0
        if load[taker] + pairs[block] > limit:  # and the ranks after this one have less room
            rest.append(block)
            continue
        worker[block] = taker
        load[taker] += pairs[block]
        taken += 1
    least = [(total, rank) for rank, total in enumerate(load.tolist())]
    heapq.heapify(least)
    for block in sorted(rest, key=lambda block: -pairs[block]):  # blocks that fit nowhere: to the rank with the least
        total, rank = least[0]
        worker[block] = rank
        heapq.heapreplace(least, (total + float(pairs[block]), rank))
    return worker if max(least)[0] < most else owner.copy()  # a few large blocks can make it worse


def _given(owner: np.ndarray, pairs: np.ndarray, load: np.ndarray, limit: float) -> np.ndarray:
    """The blocks that ranks above the limit give up, in order of position."""
    order = np.lexsort((-pairs, owner))  # of each rank, the blocks with the most pairs first
    before = np.cumsum(pairs[order]) - pairs[order]
    counts = np.bincount(owner, minlength=len(load))
    begins = np.cumsum(counts) - counts
    held = owner[order]
    gone = before - before[np.minimum(begins, len(order) - 1)][held]  # pairs that this rank gave up before this block
    return np.sort(order[load[held] - gone > limit])
