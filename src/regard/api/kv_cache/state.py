"""The state of a cache, which never changes: an operation computes the next one, and the cache then refers to that.

A cache has one attribute that its methods assign, and they assign it once, at their end. Until then the next state is
in new arrays, or in places that no sequence of the present state reads: in free pages, and after the last row of a
sequence. So an operation that fails or is interrupted anywhere leaves the cache as it was.

One case needs more. With a fixed number of pages an append may have to write to pages that it releases itself. What
these contain is kept in `State.saved` until the append has ended, and written back by `settled` if it never does.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ...common.errors import refuse
from ...language.checks.numbers import LIMIT
from .pages import PAGE, Pages


class Rows:
    """Rows in their own dtype: a row takes depth · itemsize bytes. scales: of integers, (pages, heads, PAGE)."""

    scales: np.ndarray | None = None

    def __init__(self, heads: int, depth: int, dtype: np.dtype):
        self.heads, self.depth, self.dtype = heads, depth, dtype
        self.array = np.zeros((0, heads, PAGE, depth), dtype)

    @property
    def arrays(self) -> tuple[np.ndarray, ...]:
        """All that is stored, each (pages, heads, PAGE, …)."""
        return (self.array,)

    def over(self, arrays: Sequence[np.ndarray]) -> Rows:
        """The same kind of rows in other arrays."""
        other = copy.copy(self)
        (other.array,) = arrays
        return other

    def write(self, pages: np.ndarray | int, places: np.ndarray | slice, rows: np.ndarray) -> None:
        """rows (…, heads, depth) at row `places` (…) of `pages` (…); or (heads, n, depth) at a slice of one page."""
        self.array[pages, :, places] = rows

    def read(self, pages: np.ndarray) -> np.ndarray:
        """The contents of pages (…) -> (…, heads, PAGE, depth)."""
        return self.array[pages]


class Rows8(Rows):
    """Rows in 8 bits: row ≈ scale · integers from −127 to 127, with a float32 scale = max |row| / 127 for each row.

    A row takes depth + 4 bytes. A row with a NaN or an infinity is read as NaN, because a scale cannot represent it.
    """

    scales: np.ndarray

    def __init__(self, heads: int, depth: int, dtype: np.dtype):
        super().__init__(heads, depth, np.dtype(np.int8))
        self.dtype = dtype
        self.scales = np.zeros((0, heads, PAGE), np.float32)

    @property
    def arrays(self) -> tuple[np.ndarray, ...]:
        return self.array, self.scales

    def over(self, arrays: Sequence[np.ndarray]) -> Rows8:
        other = copy.copy(self)
        other.array, other.scales = arrays
        return other

    def write(self, pages: np.ndarray | int, places: np.ndarray | slice, rows: np.ndarray) -> None:
        rows = rows.astype(np.float32)
        top = np.abs(rows).max(-1)
        scales = np.where(np.isfinite(top), top / 127, np.float32(np.nan))
        divisor = np.where(scales > 0, scales, 1)  # 1 for a row of zeros or NaN
        finite = np.where(np.isfinite(top)[..., None], rows, 0)
        super().write(pages, places, np.clip(np.rint(finite / divisor[..., None]), -127, 127).astype(np.int8))
        self.scales[pages, :, places] = scales

    def read(self, pages: np.ndarray) -> np.ndarray:
        return (self.array[pages] * self.scales[pages][..., None]).astype(self.dtype)


class Stores(NamedTuple):
    """The stored keys and the stored values of all pages."""

    k: Rows
    v: Rows

    @property
    def arrays(self) -> tuple[np.ndarray, ...]:
        return *self.k.arrays, *self.v.arrays

    @property
    def pools(self) -> tuple[np.ndarray, ...]:
        """What kernels read, with four axes each: keys, values and, if rows have scales, those of both."""
        return self.k.array, self.v.array, *(store.scales[..., None] for store in self if store.scales is not None)

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for array in self.arrays)

    def over(self, arrays: Sequence[np.ndarray]) -> Stores:
        """The same kind of stores in other arrays, in the order of `arrays`."""
        count = len(self.k.arrays)
        return type(self)(self.k.over(arrays[:count]), self.v.over(arrays[count:]))

    def grown(self, pages: int) -> Stores:
        """A copy with this number of pages; new pages are zero, and take memory only when they are written."""
        return self.over([_longer(array, pages) for array in self.arrays])

    def content(self, pages: np.ndarray) -> list[np.ndarray]:
        """A copy of everything in these pages."""
        return [array[pages] for array in self.arrays]

    def restore(self, pages: np.ndarray, content: list[np.ndarray]) -> None:
        """Sets these pages to the content of others, or of before."""
        for array, copied in zip(self.arrays, content):
            array[pages] = copied


def _longer(array: np.ndarray, pages: int) -> np.ndarray:
    longer = np.zeros((pages, *array.shape[1:]), array.dtype)
    longer[: len(array)] = array
    return longer


FEW = 16  # up to this many rows are scattered over pages together; more are copied page by page


class State(NamedTuple):
    """Everything that the methods of a cache change.

    pages, stores: where positions are stored, and the storage. lengths (B,): positions appended so far. start (B,): the
    position of the first row of the last append. width: how many rows it had per sequence, padding included. ragged:
    whether some of them may be padding. stepped (B,): which sequences it appended to; None means all. choice: how often
    sequences were added, selected, or truncated to before the last append. moved: how many positions any sequence has
    appended since then, at most. spare: how many rows fit into the last page of every sequence, at least, before a page
    can be released; in most steps of decoding that is enough, and the pages remain. saved: pages and their content,
    which is to be written back before anything is read.
    """

    pages: Pages
    stores: Stores
    lengths: np.ndarray
    start: np.ndarray
    width: int = 0
    ragged: bool = False
    stepped: np.ndarray | None = None
    choice: int = 0
    moved: int = 0
    spare: int = 0
    saved: tuple[np.ndarray, list[np.ndarray]] | None = None


def settled(state: State) -> State:
    """The state with the saved pages written back; repeating it, after an interrupt, gives the same."""
    if state.saved is None:
        return state
    state.stores.restore(*state.saved)
    return state._replace(saved=None)


class Appended(NamedTuple):
    """The checked arguments of an append.

    k, v: (n, G, new, depth). rows (n,): the number of rows that each sequence takes; None means all. sequences (n,):
    which sequences these are; None means all of the cache.
    """

    k: np.ndarray
    v: np.ndarray
    rows: np.ndarray | None
    sequences: np.ndarray | None


class Room(NamedTuple):
    """Pages with room for new rows.

    pages, stores: of the next state. source, target: pages to copy. reused: pages that the present state reads and that
    will be overwritten, because no others are free.
    """

    pages: Pages
    stores: Stores
    source: np.ndarray
    target: np.ndarray
    reused: np.ndarray


def appended(state: State, new: Appended, window: int | None, limit: int | None) -> tuple[State, Room | None]:
    """The state after an append, whose rows are still to be written, and what is to be copied before that.

    window, limit: of the cache, its window and its number of pages. Refused: the storage is full.
    """
    pages, stores, lengths, first = state.pages, state.stores, state.lengths, state.pages.first
    width, rows, chosen = new.k.shape[2], new.rows, new.sequences
    if chosen is not None:
        lengths, first = lengths[chosen], first[chosen]
    room, spare = None, state.spare
    if width > spare:
        spare = _spare(pages, lengths, first, window)
        if width > spare:
            room = _room(state, new, window, limit)
            pages, stores = room.pages, room.stores
        if room is not None or chosen is not None:
            spare = width  # not known for every sequence
    ends, stepped = lengths + (width if rows is None else rows), None
    if chosen is not None:
        ends = _with(state.lengths, chosen, ends)
        stepped = None if len(chosen) == len(ends) else _with(np.zeros(len(ends), np.bool_), chosen, True)
    choice, moved = state.choice, state.moved + width
    return State(
        pages, stores, ends, state.lengths, width, rows is not None, stepped, choice, moved, spare - width
    ), room


def write(after: State, new: Appended) -> None:
    """Writes the rows of an append to their places in the state after it."""
    (k, v), pages, start = after.stores, after.pages, after.start
    width, rows, chosen = new.k.shape[2], new.rows, new.sequences
    if width > FEW:
        for number, sequence in enumerate(range(len(start)) if chosen is None else chosen.tolist()):
            for page, places, part in pages.runs(sequence, int(start[sequence]), int(after.lengths[sequence])):
                k.write(page, places, new.k[number, :, part])
                v.write(page, places, new.v[number, :, part])
        return
    by_row_k, by_row_v = new.k.swapaxes(1, 2), new.v.swapaxes(1, 2)
    numbers, ahead = np.arange(len(by_row_k))[:, None], np.arange(width)
    if rows is not None:
        numbers, ahead = np.nonzero(ahead < rows[:, None])
        by_row_k, by_row_v = by_row_k[numbers, ahead], by_row_v[numbers, ahead]
    sequences = numbers if chosen is None else chosen[numbers]
    where = pages.place(sequences, start[sequences] + ahead)
    k.write(*where, by_row_k)
    v.write(*where, by_row_v)


def truncated(state: State, lengths: np.ndarray) -> State:
    """With only the first `lengths` (B,) positions of each sequence; rows of the last append after them are padding."""
    pages = Pages.of(state.pages.table, state.pages.first, lengths, len(state.pages.holders))
    start = np.minimum(state.start, lengths)
    # What was prepared for the last append or an earlier one is valid for rows from there on.
    choice = state.choice + int((start < state.start).any())
    return state._replace(pages=pages, lengths=lengths, start=start, ragged=True, choice=choice, spare=0)


def selected(state: State, sequences: np.ndarray) -> State:
    """With the given sequences in that order; repeated ones share their pages."""
    pages = state.pages.selected(sequences, state.lengths[sequences])
    return shown(state, sequences)._replace(pages=pages, choice=state.choice + 1, spare=0)


def added(state: State, count: int) -> State:
    """With more sequences, which are empty and have none of the rows of the last append."""
    lengths, start = np.pad(state.lengths, (0, count)), np.pad(state.start, (0, count))
    stepped = None if state.stepped is None else np.pad(state.stepped, (0, count), constant_values=True)
    return state._replace(
        pages=state.pages.added(count),
        lengths=lengths,
        start=start,
        ragged=True,
        stepped=stepped,
        choice=state.choice + 1,
        spare=0,
    )


def shown(state: State, sequences: np.ndarray) -> State:
    """The given sequences alone, to attend to them."""
    stepped = None if state.stepped is None else state.stepped[sequences]
    return state._replace(
        pages=state.pages.seen(sequences),
        lengths=state.lengths[sequences],
        start=state.start[sequences],
        stepped=None if stepped is None or stepped.all() else stepped,
    )


def held(state: State, number: int) -> range:
    """The stored positions of a sequence."""
    return range(int(state.pages.first[number]) * PAGE, int(state.lengths[number]))


def stored_rows(state: State, store: Rows, number: int) -> np.ndarray:
    """A copy of the stored rows (G, n, depth) of a sequence."""
    positions = held(state, number)
    columns = slice(positions.start // PAGE, -(-positions.stop // PAGE))
    found = store.read(state.pages.table[number, columns]).swapaxes(0, 1)
    return found.reshape(len(found), found.shape[1] * PAGE, found.shape[3])[:, : len(positions)].copy()


def _spare(pages: Pages, lengths: np.ndarray, first: np.ndarray, window: int | None) -> int:
    """`State.spare` of sequences of these lengths, of which columns before `first` were released."""
    if pages.shared or not len(lengths):
        return 0
    # The row that was written last; the last row of a page for an empty sequence, as for a full page.
    begun = (lengths - 1) & (PAGE - 1)
    spare = PAGE - 1 - int(begun.max())
    return spare if window is None else min(spare, int(((first + 1) * PAGE - lengths).min()) + window - 1)


def _room(state: State, new: Appended, window: int | None, limit: int | None) -> Room:
    pages, stores, lengths = state.pages, state.stores, state.lengths
    nothing = np.zeros(len(lengths), np.int64)
    chosen = slice(None) if new.sequences is None else new.sequences
    rows = _with(nothing, chosen, new.k.shape[2] if new.rows is None else new.rows)
    # Sequences that were not chosen release nothing.
    unseen = nothing if window is None else _with(nothing, chosen, lengths[chosen] - window + 1)
    longest = int((lengths + rows).max(initial=0))
    if longest >= LIMIT:
        raise refuse(
            "KVCache.append",
            "a sequence is too long",
            f"{longest} positions",
            "fewer than 2**31 positions",
            "start a new sequence",
        )
    change = pages.change(lengths, rows, unseen)
    missing = max(change.wanted - len(pages.free), 0)
    if missing and limit is None:
        known = len(pages.holders)
        size = max(known + missing, 2 * known)
        pages, stores, missing = pages.grown(size), stores.grown(size), 0
    if missing > len(change.freed):
        raise refuse(
            "KVCache.append",
            "the storage is full",
            f"{change.wanted} pages needed, {len(pages.free) + len(change.freed)} free",
            f"at most the {limit} pages of {PAGE} positions that were allocated",
            "drop a sequence, or create the cache with more pages=, or with pages=None to let it grow",
        )
    reused = change.freed[:missing]
    pages, source, target = pages.changed(change, reused)
    return Room(pages, stores, source, target, reused)


def _with(array: np.ndarray, where: np.ndarray | slice, values) -> np.ndarray:
    """A copy of the array with these values at these places."""
    array = array.copy()
    array[where] = values
    return array
