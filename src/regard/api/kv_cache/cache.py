"""The key/value cache of one attention layer, for several sequences."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Self, SupportsFloat, SupportsIndex

import numpy as np

from ...common.call_hooks import watched
from ...common.compiled import methods_outside_programs
from ...common.public import ArrayLike, ArrayT, Engine
from ...language.callables import Mask, Score
from ...language.checks import numbers
from ...language.checks.arguments import Arguments
from . import files
from .checks import checked_append, checked_cache, checked_lengths, checked_sequences
from .pages import PAGE, Pages
from .reader import Reader
from .state import (
    Rows,
    Rows8,
    State,
    Stores,
    added,
    appended,
    held,
    selected,
    settled,
    stored_rows,
    truncated,
    write,
)


@methods_outside_programs
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
        checked = checked_cache(
            heads, depth, value_depth, batch=batch, dtype=dtype, window=window, pages=pages, storage=storage
        )
        self.heads, self.depth, self.value_depth, count, self.dtype, self.window, self.pages = checked
        self.storage = storage
        store = Rows if storage is None else Rows8
        stores = Stores(*(store(self.heads, width, self.dtype) for width in (self.depth, self.value_depth)))
        start, size = np.zeros(count, np.int64), self.pages or 0
        self._reader = Reader(self.window)
        # The only attribute that methods assign, each in its last statement (state.py).
        self._state = State(Pages.empty(count).grown(size), stores.grown(size), start, start)

    @property
    def _now(self) -> State:
        """The state, after anything that an interrupted append left to write back."""
        state = self._state
        if state.saved is not None:
            state = self._state = settled(state)
        return state

    def __len__(self) -> int:
        """The number of sequences."""
        return len(self._state.lengths)

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
        return self._state.lengths.copy()

    @property
    def newest_start(self) -> np.ndarray:
        """(B,) the position of the first row of the last append: the default query_start of `attend`."""
        return self._state.start.copy()

    @property
    def nbytes(self) -> int:
        """Bytes of the storage; pages that were never written take no memory yet."""
        return self._state.stores.nbytes

    def held(self, sequence: SupportsIndex) -> range:
        """The positions of a sequence whose keys and values are stored.

        Args:
            sequence: its number, from 0, or negative from the end.

        Returns:
            The positions, which begin after the released ones.
        """
        return held(self._state, self._sequence(sequence))

    def keys(self, sequence: SupportsIndex) -> np.ndarray:
        """A copy of the stored keys of a sequence.

        Args:
            sequence: its number, from 0, or negative from the end.

        Returns:
            (G, n, D), at the n positions `held(sequence)`.
        """
        return stored_rows(self._now, self._now.stores.k, self._sequence(sequence))

    def values(self, sequence: SupportsIndex) -> np.ndarray:
        """A copy of the stored values of a sequence.

        Args:
            sequence: its number, from 0, or negative from the end.

        Returns:
            (G, n, E), at the n positions `held(sequence)`.
        """
        return stored_rows(self._now, self._now.stores.v, self._sequence(sequence))

    # ---- appending ---------------------------------------------------------------------------------------------------

    def append(
        self,
        k: ArrayLike,
        v: ArrayLike,
        rows: ArrayLike | None = None,
        *,
        sequences: SupportsIndex | ArrayLike | None = None,
    ) -> None:
        """Appends keys and values to each sequence, or to some of them.

        Args:
            k: (…, G, new, D) keys in the dtype of the cache; the axes before the heads are the B sequences, or the n
                chosen ones.
            v: (…, G, new, E) values in the dtype of the cache.
            rows: (B,) or (n,) the number of new rows of each sequence, if they differ; the rest is padding and not
                read.
            sequences: the numbers of n different sequences, which k, v and rows are for; the others do not change.
                None means all.

        Raises:
            Refused: an array does not fit the cache, `rows` is not in 0 … new, a sequence is missing or listed twice,
                or the storage is full. The cache is then unchanged, as after any other exception or interrupt.
        """
        state = self._now
        sizes = len(state.lengths), self.heads, self.depth, self.value_depth
        new = checked_append(k, v, rows, sequences, sizes, self.dtype)
        after, room = appended(state, new, self.window, self.pages)
        if room is not None:
            if len(room.reused):
                self._state = state._replace(saved=(room.reused, state.stores.content(room.reused)))
            after.stores.restore(room.target, after.stores.content(room.source))
        write(after, new)
        self._state = after

    def truncate(self, lengths: ArrayLike) -> None:
        """Removes the last rows of sequences, as after speculative decoding.

        A length within the last append is always possible. With a window, the keys before a shorter one may have been
        released.

        Args:
            lengths: how many positions remain, one integer for all sequences or (B,).

        Raises:
            Refused: a length is negative or longer than the sequence, or the next row would attend to released keys.
                Every problem is listed.

        Examples:
            >>> import numpy as np, regard as rg
            >>> cache = rg.KVCache(heads=2, depth=8, batch=2)
            >>> cache.append(*np.zeros((2, 2, 2, 5, 8), np.float32))  # five guessed tokens for each sequence
            >>> cache.truncate([3, 5])  # three and five of them were right
            >>> cache.lengths.tolist()
            [3, 5]
        """
        state = self._now
        first = state.pages.first * PAGE
        target = checked_lengths(lengths, state.lengths, self.window, first, "KVCache.truncate")
        self._state = truncated(state, target)

    # ---- attending ---------------------------------------------------------------------------------------------------

    def attend(
        self,
        q: ArrayT,
        *,
        mask: Mask | None = None,
        score: Score | None = None,
        scale: SupportsFloat | None = None,
        query_start: SupportsIndex | ArrayLike | None = None,
        batch_start: SupportsIndex | None = None,
        head_start: SupportsIndex | None = None,
        sinks: ArrayLike | None = None,
        engine: Engine = "auto",
        sequences: SupportsIndex | ArrayLike | None = None,
    ) -> ArrayT:
        """Attention of rows to the keys of their own sequences.

        A row attends to every key of its sequence that mask and window allow. Pass mask=rg.causal() if several rows
        were appended.

        Args:
            q: (…, H, Q, D) queries; the axes before the heads are the B sequences, or the n chosen ones.
            mask: which keys a row may attend to, as for `rg.attention`.
            score: changes the logits, as for `rg.attention`.
            scale: the factor of q·k, by default 1/√D.
            query_start: the position of the first row, one integer, (B,) or (n,). None means the rows of the last
                append, padding included, whose output is 0.
            batch_start: the number of the first sequence in a larger batch: rules and their tables count from it.
            head_start: the number of the first query head, if the cache holds some heads of a model.
            sinks: extra logits in the denominator, (H,) or (H, s).
            engine: as for `rg.attention`.
            sequences: the numbers of n different sequences, which q is for. None means all. A mask or score that
                reads the batch counts the chosen ones, from batch_start.

        Returns:
            (…, H, Q, E) in the type and dtype of `q`.

        Raises:
            Refused: as for `rg.attention`; also another number of rows or other sequences than in the last append
                without query_start, or rows that attend to released keys. Every problem is listed.
        """
        arguments = Arguments(mask, score, scale, query_start, sinks, batch_start=batch_start, head_start=head_start)
        return self._attend(q, arguments, engine, sequences)[0]

    def attend_with_lse(
        self,
        q: ArrayT,
        *,
        mask: Mask | None = None,
        score: Score | None = None,
        scale: SupportsFloat | None = None,
        query_start: SupportsIndex | ArrayLike | None = None,
        batch_start: SupportsIndex | None = None,
        head_start: SupportsIndex | None = None,
        sinks: ArrayLike | None = None,
        engine: Engine = "auto",
        sequences: SupportsIndex | ArrayLike | None = None,
    ) -> tuple[ArrayT, ArrayT]:
        """`attend`, and the log-sum-exp of each row, for `rg.merge` with the results for other keys.

        Args:
            q: (…, H, Q, D) queries, as for `attend`, like all other arguments.
            mask: which keys a row may attend to.
            score: changes the logits.
            scale: the factor of q·k, by default 1/√D.
            query_start: the position of the first row.
            batch_start: the number of the first sequence in a larger batch.
            head_start: the number of the first query head in a larger call.
            sinks: extra logits in the denominator, (H,) or (H, s).
            engine: as for `rg.attention`.
            sequences: which sequences q is for.

        Returns:
            out (…, H, Q, E) and lse (…, H, Q) in nats.

        Raises:
            Refused: as for `attend`.
        """
        arguments = Arguments(mask, score, scale, query_start, sinks, batch_start=batch_start, head_start=head_start)
        return self._attend(q, arguments, engine, sequences)

    @watched("regard.KVCache.attend")
    def _attend(self, q, arguments: Arguments, engine, sequences):
        return self._reader.computed(self._reader.checked(self._now, q, arguments, engine, sequences))

    # ---- sequences ---------------------------------------------------------------------------------------------------

    def add(self, count: int = 1) -> None:
        """Appends empty sequences.

        Args:
            count: how many.
        """
        self._state = added(self._now, numbers.count(count, "KVCache", "the number of sequences"))

    def drop(self, sequences: SupportsIndex | ArrayLike) -> None:
        """Removes sequences and releases their pages; the remaining ones are renumbered.

        Args:
            sequences: one number or several, from 0, or negative from the end.
        """
        gone = self._sequences(sequences)
        self._state = selected(self._now, np.setdiff1d(np.arange(len(self)), gone))

    def reorder(self, sequences: SupportsIndex | ArrayLike) -> None:
        """Selects sequences in a new order, as beam search needs.

        Args:
            sequences: the numbers of the new sequences. A repeated one becomes several, which share their pages until
                they write to them; omitted ones are removed.
        """
        self._state = selected(self._now, self._sequences(sequences))

    # ---- files -------------------------------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str]) -> None:
        """Saves the cache in a safetensors file, which replaces an existing file when it is complete.

        Args:
            path: the file.

        Raises:
            Refused: the file cannot be written.
        """
        kept = ("heads", "depth", "value_depth", "window", "pages", "storage")
        described = {name: getattr(self, name) for name in kept} | {"dtype": str(self.dtype)}
        files.save(Path(path), type(self).__name__, described, self._now)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """A cache that was saved: it holds the same bits and goes on as the saved one would have.

        Args:
            path: the file.

        Raises:
            Refused: the file is missing, damaged, or not a saved cache of this class. Nothing in it is executed.

        Examples:
            >>> import numpy as np, regard as rg, tempfile
            >>> cache = rg.KVCache(heads=2, depth=8)
            >>> cache.append(*np.ones((2, 2, 5, 8), np.float32))
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     cache.save(f"{folder}/cache.safetensors")
            ...     rg.KVCache.load(f"{folder}/cache.safetensors")
            KVCache(2 heads × 8, float32; lengths [5], 16,384 bytes)
        """
        described, arrays = files.load(Path(path), cls.__name__)
        options = {name: described[name] for name in ("dtype", "window", "storage")}
        cache = cls._sized(described["heads"], described["depth"], described["value_depth"], options)
        cache.pages = described["pages"]
        cache._state = files.state_of(described, arrays, cache._state.stores)
        return cache

    @classmethod
    def _sized(cls, heads: int, depth: int, value_depth: int, options: dict[str, Any]) -> Self:
        """An empty cache of these sizes."""
        return cls(heads, depth, value_depth, **options)

    def _sequences(self, chosen) -> np.ndarray:
        return checked_sequences(chosen, len(self))

    def _sequence(self, chosen) -> int:
        return int(self._sequences(chosen)[0])
