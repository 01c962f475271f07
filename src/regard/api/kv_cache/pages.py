"""Pages: which page stores which positions of which sequence.

A page stores PAGE positions. Position p of sequence b is row p % PAGE of page table[b, p // PAGE]. Every kind of cache
follows from this:

    growing    a sequence allocates a page when its last one is full
    a ring     pages that no later row can attend to are released, and reused
    paged      sequences of any length share one pool of pages
    shared     several sequences use the same page, as for a common prefix or the beams of a search;
               the first sequence that writes to it copies it
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

__all__ = ["PAGE", "Change", "Pages"]

PAGE = 128  # a multiple of the number of keys that kernels read together, so that these are in one page


class Change(NamedTuple):
    """The changes that an append makes to the pages, computed before any of them is made.

    dropped, copied, fresh: (sequence, column) of the table for pages to release, pages to copy because other sequences
    use them too, and pages to allocate. freed: the pages that no sequence uses after the release. wanted: how many are
    allocated, copies included.
    """

    dropped: tuple[np.ndarray, np.ndarray]
    copied: tuple[np.ndarray, np.ndarray]
    fresh: tuple[np.ndarray, np.ndarray]
    freed: np.ndarray
    wanted: int


class Pages:
    """The block table of all sequences, and the number of users of each page.

    table (B, columns) int32 · lengths (B,) positions appended so far · first (B,) the first column not released ·
    holders (pages,) how many sequences use a page · shared: whether several sequences use any page · free: unused
    pages, the next to allocate at the end · choice: how often sequences were added or selected · moved: how many
    positions any sequence has appended since then, at most.
    """

    def __init__(self, sequences: int):
        self.table = np.zeros((sequences, 0), np.int32)
        self.lengths = np.zeros(sequences, np.int64)
        self.first = np.zeros(sequences, np.int64)
        self.holders = np.zeros(0, np.int32)
        self.shared = False
        self.free: list[int] = []
        self.choice = self.moved = 0

    @property
    def columns(self) -> np.ndarray:
        """(B,) how many columns of the table each sequence has filled, released ones included."""
        return -(-self.lengths // PAGE)

    def place(self, sequences: np.ndarray, positions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The page of each position, and the row in it."""
        column, row = np.divmod(positions, PAGE)
        return self.table[sequences, column], row

    def runs(self, start: np.ndarray) -> Iterator[tuple[int, int, slice, slice]]:
        """(sequence, page, its rows, which of the new positions) of all positions from `start` on, page by page."""
        for sequence, (first, last) in enumerate(zip(start.tolist(), self.lengths.tolist())):
            for begin in range(first - first % PAGE, last, PAGE):
                low, high = max(begin, first), min(begin + PAGE, last)
                page = int(self.table[sequence, begin // PAGE])
                yield sequence, page, slice(low - begin, high - begin), slice(low - first, high - first)

    def fit(self, most: int, unseen: np.ndarray | None) -> bool:
        """Whether this many rows fit into the last pages and no page can be released, as in most steps of decoding."""
        if self.shared or most > PAGE or not len(self.lengths):
            return False
        # The row that was written last; the last row of a page for an empty sequence, as for a full page.
        begun = (self.lengths - 1) & (PAGE - 1)
        return bool(begun.max() + most < PAGE and (unseen is None or (unseen // PAGE <= self.first).all()))

    def change(self, rows: np.ndarray, unseen: np.ndarray) -> Change:
        """The changes for appending `rows` (B,) positions; no later row attends to a position below `unseen` (B,)."""
        dropped = _columns(self.first, np.minimum(np.maximum(unseen // PAGE, self.first), self.columns))
        fresh = _columns(self.columns, -(-(self.lengths + rows) // PAGE))
        freed, _ = self._left_by(self.table[dropped])
        begun = np.flatnonzero((rows > 0) & (self.lengths % PAGE > 0))
        begun_in = begun, self.lengths[begun] // PAGE
        shared = self.holders[self.table[begun_in]] > 1
        copied = begun[shared], begun_in[1][shared]
        # If every user of a page writes to it, the last one does not have to copy it.
        _, keeps = self._left_by(self.table[copied])
        copied = copied[0][~keeps], copied[1][~keeps]
        return Change(dropped, copied, fresh, freed, len(copied[0]) + len(fresh[0]))

    def _left_by(self, pages: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The pages without users after each of these users releases one, and which entry is the last of each page."""
        if not len(pages):
            return pages, np.zeros(0, np.bool_)
        backwards, last, count = np.unique(pages[::-1], return_index=True, return_counts=True)
        gone = count == self.holders[backwards]
        final = np.zeros(len(pages), np.bool_)
        final[len(pages) - 1 - last[gone]] = True
        return backwards[gone], final

    def append(self, rows: np.ndarray | int, most: int) -> None:
        """Adds `rows` positions, at most `most`, to each sequence; their pages must be allocated."""
        self.lengths = self.lengths + rows
        self.moved += most

    def grow(self, pages: int) -> None:
        """Grows to this number of pages."""
        known = len(self.holders)
        self.holders = np.concatenate([self.holders, np.zeros(pages - known, np.int32)])
        self.free = [*range(pages - 1, known - 1, -1), *self.free]

    def carry_out(self, change: Change) -> tuple[np.ndarray, np.ndarray]:
        """Applies the change, for which enough pages must be free; returns the pages to copy, from and to."""
        np.subtract.at(self.holders, self.table[change.dropped], 1)
        self.table[change.dropped] = 0  # an existing page, which is not read
        np.add.at(self.first, change.dropped[0], 1)
        self.free += change.freed.tolist()
        source = self.table[change.copied]
        target = self._take(len(source))
        np.subtract.at(self.holders, source, 1)
        self.table[change.copied] = target
        columns = int(change.fresh[1].max(initial=-1)) + 1
        if columns > self.table.shape[1]:
            wider = np.zeros((len(self.table), max(columns, 2 * self.table.shape[1])), np.int32)
            wider[:, : self.table.shape[1]] = self.table
            self.table = wider
        self.table[change.fresh] = self._take(len(change.fresh[0]))
        self.shared = bool((self.holders > 1).any())
        return source, target

    def _take(self, count: int) -> np.ndarray:
        taken = np.array([self.free.pop() for _ in range(count)], np.int32)
        self.holders[taken] = 1
        return taken

    def add(self, count: int) -> None:
        """Appends empty sequences."""
        self.table = np.pad(self.table, ((0, count), (0, 0)))
        self.lengths, self.first = (np.pad(part, (0, count)) for part in (self.lengths, self.first))
        self.choice += 1

    def select(self, sequences: np.ndarray) -> None:
        """Replaces the sequences by the given ones, in that order; repeated ones share their pages."""
        self.table, self.lengths, self.first = (part[sequences] for part in (self.table, self.lengths, self.first))
        held = self.table[_columns(self.first, self.columns)]
        self.holders = np.bincount(held, minlength=len(self.holders)).astype(np.int32)
        self.shared = bool((self.holders > 1).any())
        self.choice += 1
        self.free = np.flatnonzero(self.holders == 0)[::-1].tolist()


def _columns(first: np.ndarray, last: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(sequence, column) of the columns first … last - 1 of each sequence, sequence by sequence."""
    count = last - first
    sequence = np.repeat(np.arange(len(count)), count)
    return sequence, np.arange(len(sequence)) - np.repeat(np.cumsum(count) - count, count) + first[sequence]
