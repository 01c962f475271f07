"""The cache of one attention layer: keys and values of several sequences, appended as they come and attended from
there.
"""

from __future__ import annotations

import math
from typing import Any, SupportsFloat

import numpy as np

from ...common.arrays import like, read_array
from ...common.call_hooks import watched
from ...common.dtypes import FLOATS
from ...common.errors import Reason, Refused, refuse
from ...language.checks.arguments import Arguments
from ...language.masks import LIMIT, count
from .checks import known_dtype, new_rows, rows_taken, wants_gradients
from .pages import PAGE, Pages
from .reader import Reader, traced
from .storage import Rows, Rows8

__all__ = ["KVCache"]

FEW = 16  # so many rows are scattered over pages at once; more are copied page by page, in longer stretches


class KVCache:
    """The keys and values of one attention layer, for any number of sequences of any lengths.

    out = softmax(score(scale · q kᵀ) where mask) v, over the keys that a row's own sequence has appended so far.

    heads (G), depth (D), value_depth (E, by default D): of k and v. batch: how many sequences there are to begin with
    (B).
    dtype: "float32", "float16", "bfloat16" or "float64". window: a row sees so many keys, itself included, as
    `rg.window` says; keys that no coming row can see are then given back. pages: the size of the whole store in pages
    of 128 positions, from which all sequences take theirs; None lets it grow, which copies it each time it doubles.
    storage: "int8" keeps rows in 8 bits with a scale for each row and head; attention then reads numbers that are off
    by up to 1/254 of their row's largest.

    Positions count from 0 in each sequence and go on whatever is given back, so windows, ALiBi and every other rule
    mean over the cache what they mean over the whole. Use one cache for each layer.

    Refused, with all reasons at once: arrays that do not fit, more pages than there are, a row whose keys were given
    back.

    Source: Shazeer 2019 (few key heads); Kwon et al. 2023 (pages and a block table).

    >>> import numpy as np, regard as rg
    >>> q, k, v = np.random.default_rng(0).standard_normal((3, 4, 10, 16), dtype=np.float32)
    >>> cache = rg.KVCache(heads=4, depth=16)
    >>> cache.append(k[:, :9], v[:, :9])  # the prompt
    >>> out = cache.attend(q[:, :9], mask=rg.causal())
    >>> cache.append(k[:, 9:], v[:, 9:])  # one token more
    >>> bool(np.array_equal(cache.attend(q[:, 9:]), rg.attention(q, k, v, mask=rg.causal())[:, 9:]))
    True
    """

    def __init__(
        self, heads, depth, value_depth=None, *, batch=1, dtype="float32", window=None, pages=None, storage=None
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
        kept = known_dtype(dtype)
        if kept is None:
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
        if reasons or kept is None:
            raise Refused("KVCache", reasons)
        store = Rows if storage is None else Rows8
        self.dtype, self.storage = kept, storage
        self._k, self._v = store(self.heads, self.depth, kept), store(self.heads, self.value_depth, kept)
        self._held = Pages(sequences)
        if self.pages:
            self._grow(self.pages)
        self._reader = Reader(self._held, self._k, self._v, self.window)
        self._newest = 0  # rows per sequence in the last append, padding included
        self._ragged = False  # whether some of them may be padding
        self._start = np.zeros(sequences, np.int64)  # position of the first of them

    def __len__(self) -> int:
        """How many sequences there are."""
        return len(self._held.lengths)

    def __repr__(self):
        kept = str(self.dtype) if self.storage is None else f"{self.dtype} in {self.storage}"
        depth = f"{self.depth}" if self.depth == self.value_depth else f"{self.depth} and {self.value_depth}"
        rest = "" if self.window is None else f", window {self.window}"
        return (
            f"KVCache({self.heads} heads × {depth}, {kept}{rest}; lengths {self.lengths.tolist()}, "
            f"{self.nbytes:,} bytes)"
        )

    @property
    def lengths(self) -> np.ndarray:
        """(B,) how many positions each sequence has appended, those given back included: the position of its next
        row.
        """
        return self._held.lengths.copy()

    @property
    def newest_start(self) -> np.ndarray:
        """(B,) the position of the first row of the last append: where `attend` without query_start begins."""
        return self._start.copy()

    @property
    def nbytes(self) -> int:
        """Bytes of the whole store; what was never written takes no memory yet."""
        return self._k.nbytes + self._v.nbytes

    def held(self, sequence: int) -> range:
        """The positions of a sequence whose keys and values are still there."""
        number = self._sequence(sequence)
        return range(int(self._held.first[number]) * PAGE, int(self._held.lengths[number]))

    def keys(self, sequence: int) -> np.ndarray:
        """A copy of a sequence's keys (G, n, D), at the positions that `held` tells."""
        return self._rows_of(self._k, sequence)

    def values(self, sequence: int) -> np.ndarray:
        """A copy of a sequence's values (G, n, E), at the positions that `held` tells."""
        return self._rows_of(self._v, sequence)

    # ---- appending ---------------------------------------------------------------------------------------------------

    def append(self, k, v, rows=None) -> None:
        """Keys and values behind those of each sequence.

        k (…, G, new, D) · v (…, G, new, E), the axes before the heads being the B sequences. rows (B,): how many of the
        new rows each sequence takes, where they differ; what follows them is padding, and not read.

        Refused, with all reasons at once: arrays that do not fit the cache, more rows than there are, more pages than
        there are.
        """
        reasons: list[Reason] = []
        B, G = len(self), self.heads
        new_k = new_rows("k", k, (B, G, self.depth), self.dtype, reasons)
        new_v = new_rows("v", v, (B, G, self.value_depth), self.dtype, reasons)
        if new_k is not None and new_v is not None and new_k.shape[2] != new_v.shape[2]:
            reasons.append(
                Reason(
                    "k and v differ in rows",
                    given=f"{new_k.shape[2]} and {new_v.shape[2]}",
                    expected="one value row per key row",
                    fix="check axis -2",
                )
            )
        if new_k is None or new_v is None:
            raise Refused("KVCache.append", reasons)
        width = new_k.shape[2]
        taken = None if rows is None else rows_taken(rows, B, width, reasons)
        if reasons:
            raise Refused("KVCache.append", reasons)
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
        """Pages for the new rows, or a refusal that leaves everything as it was."""
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
                "the store is full",
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
        q: Any,
        *,
        mask: Any = None,
        score: Any = None,
        scale: SupportsFloat | None = None,
        query_start: Any = None,
        sinks: Any = None,
        engine: str = "auto",
    ) -> Any:
        """Attention of the newest rows, or of others, to the keys of their own sequences.

        q (…, H, Q, D), the axes before the heads being the B sequences -> out (…, H, Q, E). Without query_start, the
        rows are those that were appended last, padding included, whose output is 0; with it, row i of sequence b stands
        at query_start[b] + i. A row sees every key of its sequence that mask and window allow: say mask=rg.causal()
        where several rows were appended. The other arguments as for `rg.attention`.

        Refused, with all reasons at once: what `rg.attention` refuses, rows that are not the newest and do not say
        where they stand, rows whose window reaches back to positions that were given back.
        """
        return self._attended(q, Arguments(mask, score, scale, query_start, sinks), engine)[0]

    def attend_with_lse(
        self,
        q: Any,
        *,
        mask: Any = None,
        score: Any = None,
        scale: SupportsFloat | None = None,
        query_start: Any = None,
        sinks: Any = None,
        engine: str = "auto",
    ) -> tuple[Any, Any]:
        """`attend`, and the logarithm of each row's denominator: (out (…, H, Q, E), lse (…, H, Q)), to merge with other
        keys.
        """
        return self._attended(q, Arguments(mask, score, scale, query_start, sinks), engine)

    @watched("regard.KVCache.attend")
    def _attended(self, q, asked: Arguments, engine):
        reader, start, query_start = self._reader, self._start, asked.query_start
        asked = traced(asked)
        q = q if hasattr(q, "shape") else np.asarray(q)
        rows = read_array(q, "KVCache.attend")
        # A tensor that wants gradients is refused with the rest.
        ready = None if query_start is not None or wants_gradients(q) else reader.again(rows, asked, engine)
        if ready is None:
            reasons: list[Reason] = []
            start = self._starts(rows.shape, query_start, reasons)
            ready = reader.prepare(q, start, asked, engine, reasons)
        out, lse = reader.answer(ready, rows, start)
        if query_start is None and self._ragged:
            real = self._held.lengths - start
            padding = np.broadcast_to((np.arange(self._newest) >= real[:, None])[:, None], lse.shape)
            out[padding], lse[padding] = 0, -np.inf
        lead = ready.problem.lead
        return tuple(like(q, found.reshape(*lead, *found.shape[2:])) for found in (out, lse))

    def _starts(self, shape: tuple[int, ...], query_start, reasons: list[Reason]):
        """Where rows of this shape stand; what makes them unfit for this cache is added to the reasons."""
        if len(shape) < 2:
            return None  # refused with the rest
        B, Q = len(self), shape[-2]
        if math.prod(shape[:-3]) != B:
            reasons.append(
                Reason(
                    "q and the cache differ in sequences",
                    given=f"q ({', '.join(map(str, shape))})",
                    expected=f"B = {B} before the heads",
                    fix="pass rows for every sequence",
                )
            )
            return None
        if query_start is None:
            if self._newest != Q:
                reasons.append(
                    Reason(
                        "q does not have the rows of the last append",
                        given=f"{Q} rows",
                        expected=f"the {self._newest} rows appended last",
                        fix="append their keys first, or pass their positions: query_start=…",
                    )
                )
            return self._start
        given = read_array(query_start, "query_start")
        if given.dtype.kind not in "iu" or given.shape not in ((), (B,)):
            return given  # refused with the rest
        start = np.broadcast_to(given, (B,)).astype(np.int64)
        reach = start if self.window is None else np.maximum(start - self.window + 1, 0)
        gone = np.flatnonzero(reach < self._held.first * PAGE)
        if len(gone):
            first = int(gone[0])
            reasons.append(
                Reason(
                    "a row attends to keys that were released",
                    given=f"sequence {first}: a window from position {reach[first]}",
                    expected=f"positions from {self._held.first[first] * PAGE}",
                    fix="attend these rows before appending more",
                )
            )
        return start

    # ---- sequences ---------------------------------------------------------------------------------------------------

    def add(self, count: int = 1) -> None:
        """Empty sequences behind the others."""
        more = _whole(count)
        self._held.add(more)
        self._start = np.pad(self._start, (0, more))
        self._ragged = True  # a new sequence has none of the rows that were appended last

    def drop(self, sequences) -> None:
        """Without these sequences (a number, or several); the others close up, and the pages can be taken again."""
        gone = self._sequences(sequences)
        self._select(np.setdiff1d(np.arange(len(self)), gone))

    def reorder(self, sequences) -> None:
        """These sequences, in this order: what beam search needs.

        One that is named twice goes on as two, which share the pages they have in common; one that is not named is
        dropped.
        """
        self._select(self._sequences(sequences))

    def _select(self, sequences: np.ndarray) -> None:
        self._held.select(sequences)
        self._start = self._start[sequences]

    def _sequences(self, chosen) -> np.ndarray:
        given = np.atleast_1d(read_array(chosen, "sequences"))
        B = len(self)
        if given.ndim > 1 or (given.dtype.kind not in "iu" and given.size) or np.any((given < -B) | (given >= B)):
            raise refuse(
                "KVCache",
                "no such sequence",
                given=f"{chosen!r}",
                expected=f"numbers from 0 to {B - 1}" if B else "none: the cache is empty",
                fix="count from 0, or from the end with negative numbers",
            )
        return given.astype(np.int64) % max(B, 1)

    def _sequence(self, number: int) -> int:
        return int(self._sequences(number)[0])

    def _rows_of(self, store: Rows, sequence: int) -> np.ndarray:
        number, held = self._sequence(sequence), self.held(sequence)
        found = store.read(self._held.table[number, held.start // PAGE : -(-held.stop // PAGE)]).swapaxes(0, 1)
        G, columns, _, depth = found.shape
        return found.reshape(G, columns * PAGE, depth)[:, : len(held)].copy()


def _whole(value) -> int:
    return count(value, "KVCache", "the number of sequences")
