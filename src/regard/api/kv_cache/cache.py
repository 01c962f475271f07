"""The key/value cache of one attention layer, for several sequences."""

from __future__ import annotations

from typing import Any, SupportsFloat, SupportsIndex

import numpy as np

from ...common.arrays import like, read_array
from ...common.call_hooks import watched
from ...common.dtypes import FLOATS
from ...common.errors import Reason, Refused, refuse
from ...common.types import ArrayLike, ArrayT, Engine
from ...language.callables import Mask, Score
from ...language.checks.arguments import Arguments
from ...language.checks.numbers import LIMIT, count
from .checks import checked_append, checked_sequences, first_positions, known_dtype, requires_gradients
from .pages import PAGE, Pages
from .reader import Reader, traced
from .storage import Rows, Rows8

__all__ = ["KVCache"]

FEW = 16  # up to this many rows are scattered over pages together; more are copied page by page


class KVCache:
    """The key/value cache of one attention layer, for any number of sequences of any lengths.

    out = softmax(score(scale · q kᵀ) where mask) v, over the keys that the row's own sequence has appended so far.

    Positions count from 0 in each sequence and do not change when keys are released, so windows, ALiBi and every other
    rule mean the same as over the full sequence. Use one cache for each layer.

    Args:
        heads: the number of key/value heads, G.
        depth: the depth of the keys, D.
        value_depth: the depth of the values, E, by default D.
        batch: the number of sequences at the start, B.
        dtype: "float32", "float16", "bfloat16" or "float64", by name or as a dtype of NumPy or torch.
        window: a row attends to this many keys, itself included, as with `rg.window`; keys that no later row can attend
            to are released.
        pages: the size of the storage in pages of 128 positions, which all sequences share. None lets it grow; it is
            then copied each time it doubles.
        storage: "int8" stores rows in 8 bits with a scale for each row and head, with an error of up to 1/254 of the
            largest element of the row. None stores them in `dtype`.

    Raises:
        Refused: an argument is invalid. Every problem is listed.

    Source:
        Shazeer 2019 (few key heads); Kwon et al. 2023 (pages and a block table).

    Examples:
        >>> import numpy as np, regard as rg
        >>> q, k, v = np.random.default_rng(0).standard_normal((3, 4, 10, 16), dtype=np.float32)
        >>> cache = rg.KVCache(heads=4, depth=16)
        >>> cache.append(k[:, :9], v[:, :9])  # the prompt
        >>> out = cache.attend(q[:, :9], mask=rg.causal())
        >>> cache.append(k[:, 9:], v[:, 9:])  # the next token
        >>> bool(np.array_equal(cache.attend(q[:, 9:]), rg.attention(q, k, v, mask=rg.causal())[:, 9:]))
        True
    """

    def __init__(
        self,
        heads: SupportsIndex,
        depth: SupportsIndex,
        value_depth: SupportsIndex | None = None,
        *,
        batch: SupportsIndex = 1,
        dtype: Any = "float32",
        window: SupportsIndex | None = None,
        pages: SupportsIndex | None = None,
        storage: str | None = None,
    ):
        def whole(value, what: str, least: int) -> int:
            try:
                return count(value, "KVCache", what, least)
            except Refused as refused:
                reasons.extend(refused.reasons)
                return least

        reasons: list[Reason] = []
        self.heads, self.depth = whole(heads, "heads", 1), whole(depth, "depth", 1)
        self.value_depth = self.depth if value_depth is None else whole(value_depth, "value_depth", 1)
        sequences = whole(batch, "batch", 0)
        self.window = None if window is None else whole(window, "window", 1)
        self.pages = None if pages is None else whole(pages, "pages", 0)
        known = known_dtype(dtype)
        if known is None:
            reasons.append(
                Reason(
                    "this dtype is not supported",
                    given=f"dtype={dtype!r}",
                    expected=f"one of {', '.join(sorted(FLOATS, key=lambda name: FLOATS[name].sums))}",
                    fix="omit it for float32",
                )
            )
        if storage not in (None, "int8"):
            reasons.append(
                Reason(
                    "unknown storage",
                    given=f"storage={storage!r}",
                    expected="None, or 'int8'",
                    fix="omit it to store rows unchanged",
                )
            )
        if reasons or known is None:
            raise Refused("KVCache", reasons)
        store = Rows if storage is None else Rows8
        self.dtype, self.storage = known, storage
        self._k, self._v = store(self.heads, self.depth, known), store(self.heads, self.value_depth, known)
        self._held = Pages(sequences)
        if self.pages:
            self._grow(self.pages)
        self._reader = Reader(self._held, self._k, self._v, self.window)
        self._newest = 0  # rows per sequence in the last append, padding included
        self._ragged = False  # whether some of them may be padding
        self._start = np.zeros(sequences, np.int64)  # position of the first of them

    def __len__(self) -> int:
        """The number of sequences."""
        return len(self._held.lengths)

    def __repr__(self):
        stored = str(self.dtype) if self.storage is None else f"{self.dtype} in {self.storage}"
        depth = f"{self.depth}" if self.depth == self.value_depth else f"{self.depth} and {self.value_depth}"
        rest = "" if self.window is None else f", window {self.window}"
        return (
            f"KVCache({self.heads} heads × {depth}, {stored}{rest}; lengths {self.lengths.tolist()}, "
            f"{self.nbytes:,} bytes)"
        )

    @property
    def lengths(self) -> np.ndarray:
        """(B,) how many positions each sequence has appended, released ones included: the position of its next row."""
        return self._held.lengths.copy()

    @property
    def newest_start(self) -> np.ndarray:
        """(B,) the position of the first row of the last append: the default query_start of `attend`."""
        return self._start.copy()

    @property
    def nbytes(self) -> int:
        """Bytes of the storage; pages that were never written take no memory yet."""
        return self._k.nbytes + self._v.nbytes

    def held(self, sequence: SupportsIndex) -> range:
        """The positions of a sequence whose keys and values are stored.

        Args:
            sequence: its number, from 0, or negative from the end.

        Returns:
            The positions, which begin after the released ones.
        """
        number = self._sequence(sequence)
        return range(int(self._held.first[number]) * PAGE, int(self._held.lengths[number]))

    def keys(self, sequence: SupportsIndex) -> np.ndarray:
        """A copy of the stored keys of a sequence.

        Args:
            sequence: its number, from 0, or negative from the end.

        Returns:
            (G, n, D), at the n positions `held(sequence)`.
        """
        return self._rows_of(self._k, sequence)

    def values(self, sequence: SupportsIndex) -> np.ndarray:
        """A copy of the stored values of a sequence.

        Args:
            sequence: its number, from 0, or negative from the end.

        Returns:
            (G, n, E), at the n positions `held(sequence)`.
        """
        return self._rows_of(self._v, sequence)

    # ---- appending ---------------------------------------------------------------------------------------------------

    def append(self, k: ArrayLike, v: ArrayLike, rows: ArrayLike | None = None) -> None:
        """Appends keys and values to each sequence.

        Args:
            k: (…, G, new, D) keys in the dtype of the cache; the axes before the heads are the B sequences.
            v: (…, G, new, E) values in the dtype of the cache.
            rows: (B,) the number of new rows of each sequence, if they differ; the rest is padding and not read.

        Raises:
            Refused: an array does not fit the cache, `rows` is not in 0 … new, or the storage is full. The cache is
                then unchanged.
        """
        sizes = len(self), self.heads, self.depth, self.value_depth
        new_k, new_v, taken = checked_append(k, v, rows, sizes, self.dtype)
        width = new_k.shape[2]
        self._make_room(width, taken)
        start = self._start = self._held.lengths
        self._held.append(width if taken is None else taken, width)
        if width > FEW:
            for sequence, page, places, part in self._held.runs(start):
                self._k.write(page, places, new_k[sequence, :, part])
                self._v.write(page, places, new_v[sequence, :, part])
        else:
            sequences, ahead = np.arange(len(start))[:, None], np.arange(width)
            by_row_k, by_row_v = new_k.swapaxes(1, 2), new_v.swapaxes(1, 2)
            if taken is not None:
                sequences, ahead = np.nonzero(ahead < taken[:, None])
                by_row_k, by_row_v = by_row_k[sequences, ahead], by_row_v[sequences, ahead]
            where = self._held.place(sequences, start[sequences] + ahead)
            self._k.write(*where, by_row_k)
            self._v.write(*where, by_row_v)
        self._newest, self._ragged = width, rows is not None

    def _make_room(self, width: int, taken: np.ndarray | None) -> None:
        """Allocates pages for the new rows; raises `Refused` without any change if there are too few."""
        held = self._held
        unseen = None if self.window is None else held.lengths - self.window + 1
        if held.fit(width, unseen):
            return
        taken = np.full(len(self), width) if taken is None else taken
        longest = int((held.lengths + taken).max(initial=0))
        if longest >= LIMIT:
            raise refuse(
                "KVCache.append",
                "a sequence is too long",
                given=f"{longest} positions",
                expected="fewer than 2**31 positions",
                fix="start a new sequence",
            )
        change = held.change(taken, np.zeros_like(taken) if unseen is None else unseen)
        known = len(held.holders)
        missing = change.wanted - len(held.free) - len(change.freed)
        if missing > 0 and self.pages is not None:
            raise refuse(
                "KVCache.append",
                "the storage is full",
                given=f"{change.wanted} pages needed, {change.wanted - missing} free",
                expected=f"at most the {self.pages} pages of {PAGE} positions that were allocated",
                fix="drop a sequence, or create the cache with more pages=, or with pages=None to let it grow",
            )
        if missing > 0:
            self._grow(max(known + missing, 2 * known))
        source, target = held.carry_out(change)
        if len(source):
            self._k.copy(source, target)
            self._v.copy(source, target)

    def _grow(self, pages: int) -> None:
        self._held.grow(pages)
        self._k.grow(pages)
        self._v.grow(pages)

    # ---- attending ---------------------------------------------------------------------------------------------------

    def attend(
        self,
        q: ArrayT,
        *,
        mask: Mask | None = None,
        score: Score | None = None,
        scale: SupportsFloat | None = None,
        query_start: SupportsIndex | ArrayLike | None = None,
        sinks: ArrayLike | None = None,
        engine: Engine = "auto",
    ) -> ArrayT:
        """Attention of rows to the keys of their own sequences.

        A row attends to every key of its sequence that mask and window allow. Pass mask=rg.causal() if several rows
        were appended.

        Args:
            q: (…, H, Q, D) queries; the axes before the heads are the B sequences.
            mask: which keys a row may attend to, as for `rg.attention`.
            score: changes the logits, as for `rg.attention`.
            scale: the factor of q·k, by default 1/√D.
            query_start: the position of the first row, one integer or (B,). None means the rows of the last append,
                padding included, whose output is 0.
            sinks: extra logits in the denominator, (H,) or (H, n).
            engine: as for `rg.attention`.

        Returns:
            (…, H, Q, E) in the type and dtype of `q`.

        Raises:
            Refused: as for `rg.attention`; also another number of rows than in the last append without query_start, or
                rows that attend to released keys. Every problem is listed.
        """
        return self._attend(q, Arguments(mask, score, scale, query_start, sinks), engine)[0]

    def attend_with_lse(
        self,
        q: ArrayT,
        *,
        mask: Mask | None = None,
        score: Score | None = None,
        scale: SupportsFloat | None = None,
        query_start: SupportsIndex | ArrayLike | None = None,
        sinks: ArrayLike | None = None,
        engine: Engine = "auto",
    ) -> tuple[ArrayT, ArrayT]:
        """`attend`, and the log-sum-exp of each row, for `rg.merge` with the results for other keys.

        Args:
            q: (…, H, Q, D) queries, as for `attend`, like all other arguments.
            mask: which keys a row may attend to.
            score: changes the logits.
            scale: the factor of q·k, by default 1/√D.
            query_start: the position of the first row.
            sinks: extra logits in the denominator, (H,) or (H, n).
            engine: as for `rg.attention`.

        Returns:
            out (…, H, Q, E) and lse (…, H, Q) in nats.

        Raises:
            Refused: as for `attend`.
        """
        return self._attend(q, Arguments(mask, score, scale, query_start, sinks), engine)

    @watched("regard.KVCache.attend")
    def _attend(self, q, arguments: Arguments, engine):
        reader, start, query_start = self._reader, self._start, arguments.query_start
        arguments = traced(arguments)
        q = q if hasattr(q, "shape") else np.asarray(q)
        rows = read_array(q, "KVCache.attend")
        # A tensor that requires gradients is rejected in `prepare`, with all other problems.
        ready = None if query_start is not None or requires_gradients(q) else reader.again(rows, arguments, engine)
        if ready is None:
            reasons: list[Reason] = []
            last = self._start, self._newest
            start = first_positions(rows.shape, query_start, self._held, self.window, last, reasons)
            ready = reader.prepare(q, start, arguments, engine, reasons)
        out, lse = reader.answer(ready, rows, start)
        if query_start is None and self._ragged:
            real = self._held.lengths - start
            padding = np.broadcast_to((np.arange(self._newest) >= real[:, None])[:, None], lse.shape)
            out[padding], lse[padding] = 0, -np.inf
        lead = ready.problem.lead
        return tuple(like(q, found.reshape(*lead, *found.shape[2:])) for found in (out, lse))

    # ---- sequences ---------------------------------------------------------------------------------------------------

    def add(self, count: int = 1) -> None:
        """Appends empty sequences.

        Args:
            count: how many.
        """
        more = _whole(count)
        self._held.add(more)
        self._start = np.pad(self._start, (0, more))
        self._ragged = True  # a new sequence has none of the rows of the last append

    def drop(self, sequences: SupportsIndex | ArrayLike) -> None:
        """Removes sequences and releases their pages; the remaining ones are renumbered.

        Args:
            sequences: one number or several, from 0, or negative from the end.
        """
        gone = self._sequences(sequences)
        self._select(np.setdiff1d(np.arange(len(self)), gone))

    def reorder(self, sequences: SupportsIndex | ArrayLike) -> None:
        """Selects sequences in a new order, as beam search needs.

        Args:
            sequences: the numbers of the new sequences. A repeated one becomes several, which share their pages until
                they write to them; omitted ones are removed.
        """
        self._select(self._sequences(sequences))

    def _select(self, sequences: np.ndarray) -> None:
        self._held.select(sequences)
        self._start = self._start[sequences]

    def _sequences(self, chosen) -> np.ndarray:
        return checked_sequences(chosen, len(self))

    def _sequence(self, number: SupportsIndex) -> int:
        return int(self._sequences(number)[0])

    def _rows_of(self, store: Rows, sequence: SupportsIndex) -> np.ndarray:
        number, held = self._sequence(sequence), self.held(sequence)
        found = store.read(self._held.table[number, held.start // PAGE : -(-held.stop // PAGE)]).swapaxes(0, 1)
        G, columns, _, depth = found.shape
        return found.reshape(G, columns * PAGE, depth)[:, : len(held)].copy()


def _whole(value) -> int:
    return count(value, "KVCache", "the number of sequences")
