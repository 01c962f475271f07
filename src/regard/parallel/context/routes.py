"""The routes of a call over the whole sequence: which pages travel for its mask, and which rows each rank computes.

A placement says who holds and who computes; its own routes are those of the mask that it was chosen for. A model uses
several masks over one placement, so the routes of each are found from the plan of its call, once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import numpy as np

from ...common.caching import Memo
from ...language.problem import Problem
from ..placement import Placement
from ..work import PAGE, Work, needed, routes

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


BLOCK = 1024 // PAGE  # pages whose rows are one partial sum of the backward kernel


@dataclass(frozen=True, eq=False)
class Routes:
    """The routes of one call, as every rank finds them.

    owner, worker: of each page. offsets, pages: what rank t visits of rank s is pages[offsets[t·R + s] : …], as in
    `Placement`. spans: of each rank, the first page and one past the last of each run of rows that it computes at once.
    visited: of each rank, for each of its spans, the pages that those rows visit; empty without gradients.
    """

    owner: np.ndarray
    worker: np.ndarray
    offsets: np.ndarray
    pages: np.ndarray
    spans: list[list[tuple[int, int]]]
    visited: list[list[np.ndarray]]

    @property
    def ranks(self) -> int:
        return len(self.spans)

    @property
    def moved(self) -> bool:
        """Whether a rank computes rows that another one holds."""
        return bool((self.owner != self.worker).any())

    def travel(self, source: int, target: int) -> np.ndarray:
        """The pages of rank `source` that the rows of rank `target` visit, ascending."""
        pair = target * self.ranks + source
        return self.pages[self.offsets[pair] : self.offsets[pair + 1]]

    def lent(self, owner: int, worker: int) -> np.ndarray:
        """The pages whose rows a rank holds and another computes."""
        return np.flatnonzero((self.owner == owner) & (self.worker == worker))

    def visited_of(self, rank: int, owner: int) -> list[np.ndarray]:
        """For each span of a rank, which of its visited pages a rank holds: places in `visited`."""
        return [np.flatnonzero(self.owner[pages] == owner) for pages in self.visited[rank]]

    def segment(self, span: tuple[int, int]) -> Segment:
        """The blocks of 1024 positions of a span, with gradients."""
        first, last = span[0] // BLOCK, -(-span[1] // BLOCK)
        return Segment(first, last - first)


class Rows:
    """The tokens of some pages, ascending, as a rank stores them: one after another.

    numbers: the pages. tokens: in the whole sequence, whose last page may be shorter.
    """

    def __init__(self, numbers: np.ndarray, tokens: int):
        self.numbers = numbers
        ends = np.minimum((numbers + 1) * PAGE, tokens)
        self.starts = np.append(0, np.cumsum(ends - numbers * PAGE))

    def __len__(self) -> int:
        return int(self.starts[-1])

    def runs(self, numbers: np.ndarray) -> list[tuple[slice, slice]]:
        """Where the tokens of some of the pages are: (here, in the sequence) of each run of consecutive pages."""
        found = []
        if numbers.size:
            for run in np.split(numbers, np.flatnonzero(np.diff(numbers) > 1) + 1):
                first, last = np.searchsorted(self.numbers, run[[0, -1]])
                here = slice(int(self.starts[first]), int(self.starts[last + 1]))
                position = int(run[0]) * PAGE
                found.append((here, slice(position, position + here.stop - here.start)))
        return found


_routes: Memo[Routes] = Memo(64)


def routes_of(whole: Problem, place: Placement, gradients: bool) -> Routes:
    """The routes of a call. With gradients, rows are computed in blocks of 1024, so that sums over them are those of
    one process: by the rank that has most of a block.
    """
    kind = (whole.q.shape, whole.k.shape, place, gradients)
    return _routes((whole.mask,), kind, lambda: _found(whole, place, gradients))


def _found(whole: Problem, place: Placement, gradients: bool) -> Routes:
    work, ranks = Work.over(whole), place.ranks
    owner = place.owner.astype(np.int64)
    worker = place.worker.astype(np.int64)
    if gradients:
        worker = _by_block(worker, ranks)
    spans = [_spans(np.flatnonzero(worker == rank), gradients, len(owner)) for rank in range(ranks)]
    offsets, pages = routes(work, owner, worker, ranks, own=True)
    visited: list[list[np.ndarray]] = [[] for _ in range(ranks)]
    if gradients:
        numbered = [(rank, span) for rank, each in enumerate(spans) for span in each]
        place_of = np.empty(len(owner), np.int64)  # the number of the span of each page, over all ranks
        for number, (_, (first, last)) in enumerate(numbered):
            place_of[first:last] = number
        for start, marks in needed(work, place_of, len(numbered)):
            for (rank, _), row in zip(numbered[start:], marks, strict=False):
                visited[rank].append(np.flatnonzero(row))
    return Routes(owner, worker, offsets, pages, spans, visited)


def _by_block(worker: np.ndarray, ranks: int) -> np.ndarray:
    """The rank that computes most pages of each block computes all of them."""
    block = np.arange(len(worker)) // BLOCK
    counts = np.zeros((block[-1] + 1, ranks), np.int64)
    np.add.at(counts, (block, worker), 1)
    return counts.argmax(1)[block]


def _spans(mine: np.ndarray, gradients: bool, pages: int) -> list[tuple[int, int]]:
    """Runs of consecutive pages; with gradients divided into subtrees of blocks."""
    if not mine.size:
        return []
    edges = np.flatnonzero(np.diff(mine) > 1) + 1
    runs = [(int(run[0]), int(run[-1]) + 1) for run in np.split(mine, edges)]
    if not gradients:
        return runs
    parts = [part for first, last in runs for part in segments(first // BLOCK, -(-last // BLOCK))]
    return [(part.first * BLOCK, min((part.first + part.size) * BLOCK, pages)) for part in parts]
