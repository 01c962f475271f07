"""Layouts: which rank holds each page, and computes the rows of the same positions."""

from __future__ import annotations

import heapq

import numpy as np

CHUNK = 8  # pages that `balanced` moves together, where every rank gets at least one such chunk


def contiguous(pages: int, ranks: int) -> np.ndarray:
    """Consecutive pages, as many for each rank as for the others, or one more.

    >>> contiguous(8, 2).tolist()
    [0, 0, 0, 0, 1, 1, 1, 1]
    """
    return _parts(pages, ranks)


def zigzag(pages: int, ranks: int) -> np.ndarray:
    """Two parts for each rank, one from the start and its mirror image from the end.

    >>> zigzag(8, 2).tolist()
    [0, 0, 1, 1, 1, 1, 0, 0]
    """
    part = _parts(pages, 2 * ranks)
    return np.minimum(part, 2 * ranks - 1 - part)


def striped(pages: int, ranks: int) -> np.ndarray:
    """Page i at rank i modulo the number of ranks.

    >>> striped(5, 2).tolist()
    [0, 1, 0, 1, 0]
    """
    return np.arange(pages) % ranks


def balanced(pairs: np.ndarray, ranks: int) -> np.ndarray:
    """Chunks of pages from the most work to the least, each to the rank with the least so far that has room.

    pairs: of each block of rows. A rank holds at most ⌈chunks / ranks⌉ chunks.

    >>> balanced(np.array([5, 1, 1, 3]), 2).tolist()
    [0, 0, 1, 1]
    """
    size = max(1, min(CHUNK, len(pairs) // ranks))
    work = np.add.reduceat(pairs, np.arange(0, len(pairs), size))
    most = -(-len(work) // ranks)
    waiting = [(0, rank, 0) for rank in range(ranks)]  # pairs, rank, chunks: already a heap
    owner = np.zeros(len(work), np.int64)
    for chunk in np.argsort(-work, kind="stable").tolist():
        total, rank, chunks = heapq.heappop(waiting)
        owner[chunk] = rank
        if chunks + 1 < most:
            heapq.heappush(waiting, (total + int(work[chunk]), rank, chunks + 1))
    return np.repeat(owner, size)[: len(pairs)]


def _parts(pages: int, parts: int) -> np.ndarray:
    """The part of each page, of parts of equal size."""
    return np.arange(pages) * parts // pages
