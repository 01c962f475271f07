"""The tree of law 11 for sums that several ranks hold: segments of blocks of positions, merged in pairs.

A segment is a subtree: 2ⁿ blocks that begin at a multiple of 2ⁿ. Sums over some segments are merged as the kernel
merges blocks: two neighbors of a level into one of the next, and what is missing is an empty sum.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

import numpy as np

T = TypeVar("T")


class Segment(NamedTuple):
    """`size` blocks (a power of two) from block `first` on (a multiple of it)."""

    first: int
    size: int


class Pages(NamedTuple):
    """Sums for some pages, ascending; each array begins with an axis of the pages."""

    numbers: np.ndarray
    sums: tuple[np.ndarray, ...]


def segments(first: int, last: int) -> list[Segment]:
    """The largest subtrees that make up the blocks from `first` to `last`, without the last.

    >>> [tuple(each) for each in segments(3, 8)]
    [(3, 1), (4, 4)]
    """
    found = []
    while first < last:
        size = first & -first or 1 << (last - first).bit_length()
        while first + size > last:
            size >>= 1
        found.append(Segment(first, size))
        first += size
    return found


def merged(parts: Sequence[tuple[Segment, T]], add: Callable[[T, T], T]) -> T:
    """The sums of disjoint segments, at least one, in any order, merged in the tree over their positions."""
    ordered = sorted(parts, key=lambda each: each[0])
    if len(ordered) == 1:
        return ordered[0][1]
    low, high = ordered[0][0].first, ordered[-1][0].first
    bit = (low ^ high).bit_length() - 1  # where the subtree of all of them splits
    split = high >> bit << bit
    left = [each for each in ordered if each[0].first < split]
    return add(merged(left, add), merged(ordered[len(left) :], add))


def add_pages(one: Pages, other: Pages) -> Pages:
    """The sums of both; a page that only one of them has is unchanged."""
    numbers = np.union1d(one.numbers, other.numbers)
    at, beside = np.searchsorted(numbers, one.numbers), np.searchsorted(numbers, other.numbers)
    both = np.isin(other.numbers, one.numbers, assume_unique=True)
    found = []
    for a, b in zip(one.sums, other.sums, strict=True):
        total = np.empty((len(numbers), *a.shape[1:]), a.dtype)
        total[at] = a
        total[beside[~both]] = b[~both]
        total[beside[both]] += b[both]
        found.append(total)
    return Pages(numbers, tuple(found))
