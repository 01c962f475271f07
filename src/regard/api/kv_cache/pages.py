"""Pages: which page holds which positions of which sequence.

A page has room for PAGE positions. Position p of sequence b is row p % PAGE of page table[b, p // PAGE]. That one idea
gives every kind of cache:

    growing    a sequence takes a page when its last one is full
    a ring     pages that no coming row can see are given back, and taken again
    paged      sequences of any length share one pool, and what one gives back another takes
    shared     several sequences hold the same page: a common prefix, the beams of a search;
               the first to write into it copies it
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

__all__ = ["PAGE", "Change", "Pages"]

PAGE = 128  # a multiple of the keys that kernels take at once, so that what they take lies in one page


class Change(NamedTuple):
    """What an append does to the pages, worked out before anything is done.

    dropped, copied, fresh: (sequence, column) of the table for pages given back, pages to copy because others hold them
    too, and pages to take. freed: the pages that nobody holds once the dropped are given back. wanted: how many are
    taken, copies included.
    """

    dropped: tuple[np.ndarray, np.ndarray]
    copied: tuple[np.ndarray, np.ndarray]
    fresh: tuple[np.ndarray, np.ndarray]
    freed: np.ndarray
    wanted: int


class Pages:
    """The block table of all sequences, and who holds each page.

    table (B, columns) int32 · lengths (B,) positions appended so far · first (B,) the first column still held ·
    holders (pages,) how many sequences hold a page · shared: whether any page is held by several · free: pages that
    none holds, the next to take last · choice: how often sequences were added or selected · moved: how far any has got
    since, at most.
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
        """(B,) how many columns of the table each sequence has filled, those given back included."""
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
        """Whether so many rows go into the last pages as they are, and nothing can be given back: a step of decoding,
        nearly always.
        """
        if self.shared or most > PAGE or not len(self.lengths):
            return False
        begun = (self.lengths - 1) & (
            PAGE - 1
        )  # the row that was written last; of an empty sequence, as of a full page, the last
        return bool(begun.max() + most < PAGE and (unseen is None or (unseen // PAGE <= self.first).all()))

    def change(self, rows: np.ndarray, unseen: np.ndarray) -> Change:
        """What it takes to append `rows` (B,) positions, where no coming row sees a position below `unseen` (B,)."""
        dropped = _columns(self.first, np.minimum(np.maximum(unseen // PAGE, self.first), self.columns))
        fresh = _columns(self.columns, -(-(self.lengths + rows) // PAGE))
        freed, _ = self._left_by(self.table[dropped])
        begun = np.flatnonzero((rows > 0) & (self.lengths % PAGE > 0))
        begun_in = begun, self.lengths[begun] // PAGE
        shared = self.holders[self.table[begun_in]] > 1
        copied = begun[shared], begun_in[1][shared]
        # Where all who hold a page write into it, the last of them need not copy it.
        _, keeps = self._left_by(self.table[copied])
        copied = copied[0][~keeps], copied[1][~keeps]
        return Change(dropped, copied, fresh, freed, len(copied[0]) + len(fresh[0]))

    def _left_by(self, pages: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Which pages nobody holds once each mention of a page lets it go, and the last mention of each of these."""
        if not len(pages):
            return pages, np.zeros(0, np.bool_)
        backwards, last, count = np.unique(pages[::-1], return_index=True, return_counts=True)
        gone = count == self.holders[backwards]
        final = np.zeros(len(pages), np.bool_)
        final[len(pages) - 1 - last[gone]] = True
        return backwards[gone], final

    def append(self, rows: np.ndarray | int, most: int) -> None:
        """So many positions more in each sequence, `most` at most, for which there is room."""
        self.lengths = self.lengths + rows
        self.moved += most

    def grow(self, pages: int) -> None:
        """More pages, up to so many in all."""
        known = len(self.holders)
        self.holders = np.concatenate([self.holders, np.zeros(pages - known, np.int32)])
        self.free = [*range(pages - 1, known - 1, -1), *self.free]

    def carry_out(self, change: Change) -> tuple[np.ndarray, np.ndarray]:
        """The change, where enough pages are free -> the pages to copy, from and to."""
        np.subtract.at(self.holders, self.table[change.dropped], 1)
        self.table[change.dropped] = 0  # a page that is there; nobody looks into it
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
        """Empty sequences behind the others."""
        self.table = np.pad(self.table, ((0, count), (0, 0)))
        self.lengths, self.first = (np.pad(part, (0, count)) for part in (self.lengths, self.first))
        self.choice += 1

    def select(self, sequences: np.ndarray) -> None:
        """The named sequences, in that order; one named twice goes on as two that share their pages."""
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
