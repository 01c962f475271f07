"""Pages: which page stores which positions of which sequence.

A page stores PAGE positions. Position p of sequence b is row p % PAGE of page table[b, p // PAGE]. Every kind of cache
follows from this:

    growing    a sequence allocates a page when its last one is full
    a ring     pages that no later row can attend to are released, and reused
    paged      sequences of any length share one pool of pages
    shared     several sequences use the same page, as for a common prefix or the beams of a search;
               the first sequence that writes to it copies it

Nothing here changes: every operation returns new `Pages`, so that a cache can go on with the old ones if it fails.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

PAGE = 128  # a multiple of the number of keys that kernels read together, so that these are in one page
SHIFT = PAGE.bit_length() - 1


class Change(NamedTuple):
    """What an append does to the pages, before it is known which pages it allocates.

    dropped, copied, fresh: (sequence, column) of the table for pages to release, pages to copy because other sequences
    use them too, and pages to allocate. holders: the users of each page after the release. freed: the pages that it
    leaves without users. wanted: how many are allocated, copies included.
    """

    dropped: tuple[np.ndarray, np.ndarray]
    copied: tuple[np.ndarray, np.ndarray]
    fresh: tuple[np.ndarray, np.ndarray]
    holders: np.ndarray
    freed: np.ndarray
    wanted: int


@dataclass(frozen=True)
class Pages:
    """The block table of all sequences, and the number of users of each page.

    table (B, columns) int32 · first (B,) the first column not released · holders (pages,) how many sequences use a
    page · shared: whether several sequences use any page · free: unused pages, the next to allocate at the end.
    """

    table: np.ndarray
    first: np.ndarray
    holders: np.ndarray
    shared: bool
    free: np.ndarray

    @classmethod
    def of(cls, table: np.ndarray, first: np.ndarray, lengths: np.ndarray, pages: int) -> Pages:
        """The pages of sequences with this table and these lengths, in a store of `pages` pages."""
        held = table[_columns(first, columns(lengths))]
        holders = np.bincount(held, minlength=pages).astype(np.int32)
        return cls(table, first, holders, bool((holders > 1).any()), np.flatnonzero(holders == 0)[::-1])

    @classmethod
    def empty(cls, sequences: int) -> Pages:
        nothing = np.zeros(sequences, np.int64)
        return cls.of(np.zeros((sequences, 0), np.int32), nothing, nothing, 0)

    def place(self, sequences: np.ndarray, positions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The page of each position, and the row in it."""
        return self.table[sequences, positions >> SHIFT], positions & (PAGE - 1)

    def runs(self, sequence: int, first: int, last: int) -> Iterator[tuple[int, slice, slice]]:
        """(page, its rows, which of the new positions) of the positions first … last - 1, page by page."""
        for begin in range(first - first % PAGE, last, PAGE):
            low, high = max(begin, first), min(begin + PAGE, last)
            page = int(self.table[sequence, begin // PAGE])
            yield page, slice(low - begin, high - begin), slice(low - first, high - first)

    def change(self, lengths: np.ndarray, rows: np.ndarray, unseen: np.ndarray) -> Change:
        """The change for appending `rows` (B,) to `lengths` (B,); no later row attends to a position below `unseen`."""
        filled = columns(lengths)
        dropped = _columns(self.first, np.minimum(np.maximum(unseen // PAGE, self.first), filled))
        fresh = _columns(filled, columns(lengths + rows))
        begun = np.flatnonzero((rows > 0) & (lengths % PAGE > 0))
        begun = begun[np.argsort(lengths[begun], kind="stable")]
        column = lengths[begun] // PAGE
        copying = self._copied(self.table[begun, column])
        copied = begun[copying], column[copying]
        holders = self.holders.copy()
        for released in (dropped, copied):
            np.subtract.at(holders, self.table[released], 1)
        freed = np.flatnonzero((holders == 0) & (self.holders > 0))
        return Change(dropped, copied, fresh, holders, freed, len(copied[0]) + len(fresh[0]))

    def _copied(self, pages: np.ndarray) -> np.ndarray:
        """Which of these users, the longest sequence last, must copy its page before it writes to it.

        If every user of a page writes to it, the longest one does not have to: no sequence reads the rows after its
        own.
        """
        copied = self.holders[pages] > 1
        backwards, last, count = np.unique(pages[::-1], return_index=True, return_counts=True)
        copied[len(pages) - 1 - last[count == self.holders[backwards]]] = False
        return copied

    def changed(self, change: Change, reused: np.ndarray) -> tuple[Pages, np.ndarray, np.ndarray]:
        """The pages after the change, and the pages to copy, from and to.

        reused: pages that the change itself releases and that are allocated again, because too few are free.
        """
        kept = len(self.free) - (change.wanted - len(reused))
        taken = np.concatenate([reused, self.free[kept:]])
        left = np.setdiff1d(change.freed, reused)
        source = self.table[change.copied]
        width = self.table.shape[1]
        needed = int(change.fresh[1].max(initial=-1)) + 1
        wider = width if needed <= width else max(needed, 2 * width)
        table = np.zeros((len(self.table), wider), np.int32)
        table[:, :width] = self.table
        table[change.dropped] = 0  # an existing page, which is not read
        table[change.copied], table[change.fresh] = taken[: len(source)], taken[len(source) :]
        first = self.first.copy()
        np.add.at(first, change.dropped[0], 1)
        holders = self.holders.copy()
        holders[: len(change.holders)] = change.holders  # there may be more pages since
        holders[taken] = 1
        free = np.concatenate([self.free[:kept], left])
        return Pages(table, first, holders, bool((holders > 1).any()), free), source, taken[: len(source)]

    def grown(self, pages: int) -> Pages:
        """These pages in a store of `pages` pages."""
        known = len(self.holders)
        holders = np.concatenate([self.holders, np.zeros(pages - known, np.int32)])
        return replace(self, holders=holders, free=np.concatenate([np.arange(pages - 1, known - 1, -1), self.free]))

    def added(self, count: int) -> Pages:
        """With more sequences, which are empty."""
        return replace(self, table=np.pad(self.table, ((0, count), (0, 0))), first=np.pad(self.first, (0, count)))

    def selected(self, sequences: np.ndarray, lengths: np.ndarray) -> Pages:
        """The given sequences in that order, of these lengths; repeated ones share their pages."""
        return Pages.of(self.table[sequences], self.first[sequences], lengths, len(self.holders))

    def seen(self, sequences: np.ndarray) -> Pages:
        """The given sequences alone, to read them: nothing is released."""
        return replace(self, table=self.table[sequences], first=self.first[sequences])


def columns(lengths: np.ndarray) -> np.ndarray:
    """(B,) how many columns of the table sequences of these lengths have filled, released ones included."""
    return -(-lengths // PAGE)


def _columns(first: np.ndarray, last: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(sequence, column) of the columns first … last - 1 of each sequence, sequence by sequence."""
    count = last - first
    sequence = np.repeat(np.arange(len(count)), count)
    return sequence, np.arange(len(sequence)) - np.repeat(np.cumsum(count) - count, count) + first[sequence]
