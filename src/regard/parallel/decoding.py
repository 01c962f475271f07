"""Decoding over ranks: caches of keys and values whose positions are spread, and attention over them.

Each rank computes undivided results over its subtrees of the positions, and all merge them. A rank sends m, l and O of
each of its subtrees: E + 2 numbers per row and head, whatever the number of keys. They are merged in the tree over
positions, as one process merges its pieces, so the result has the same bits.
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import sys
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, SupportsFloat, SupportsIndex, TypeVar

import numpy as np

from ..api.kv_cache import KVCache as Local
from ..api.kv_cache import reader
from ..api.kv_cache.checks import checked_append, checked_lengths, checked_sequences
from ..api.kv_cache.pages import PAGE, Pages, columns
from ..api.kv_cache.state import Appended, State, added, appended, shown
from ..common.compiled import methods_outside_programs
from ..common.errors import refuse
from ..common.public import ArrayLike, ArrayT
from ..engines import dispatch
from ..language.callables import Mask, Score
from ..language.checks import numbers
from ..language.checks.arguments import Arguments
from ..language.problem import Problem
from .context.routes import Segment, merged, segments
from .exchange import SECONDS, Transport, agreed, processes, swap_arrays

BLOCK = 1024  # positions: a piece of the kernel, of which the tree of law 11 is made


class Shares(NamedTuple):
    """Which rank holds which positions of a sequence that grows, so that they are equal and partials are few.

    Positions are dealt in rounds of blocks of 1024, in each round the same number of consecutive ones to every rank.
    The first round is as long as the caller expects a sequence to be; the second has the same length, and every further
    one is as long as all before it. So any length is possible, and a rank with half a round more than another is the
    worst case.

    ranks: how many · blocks: what each rank holds of the first round
    """

    ranks: int
    blocks: int

    @classmethod
    def of(cls, ranks: int, tokens: int | None) -> Shares:
        """For sequences of about this many positions; None is unknown, and the first round has a block for each rank.

        >>> Shares.of(2, 4096).spans(0, 16), Shares.of(2, None).spans(0, 16)
        ([(0, 2), (4, 6), (8, 12)], [(0, 1), (2, 3), (4, 6), (8, 12)])
        """
        return cls(ranks, max(1, -(-(tokens or 0) // (BLOCK * ranks))))

    def spans(self, rank: int, last: int) -> list[tuple[int, int]]:
        """(first, last) block of each run of consecutive blocks of a rank among the first `last`, ascending."""
        found, begin, size = [], 0, self.blocks
        while begin < last:
            first = begin + rank * size
            if first < last:
                found.append((first, min(first + size, last)))
            begin += self.ranks * size
            size = begin // self.ranks
        return found

    def segments(self, rank: int, first: int, last: int) -> list[Segment]:
        """The subtrees that make up the blocks of a rank among the first `last`, without those that end by `first`."""
        found = [each for span in self.spans(rank, last) for each in segments(*span)]
        return [each for each in found if each.first + each.size > first]

    def positions(self, rank: int, first: int, last: int) -> np.ndarray:
        """The positions of a rank from `first` to `last`, without the last."""
        spans = self.spans(rank, -(-last // BLOCK))
        parts = [np.arange(max(begin * BLOCK, first), min(end * BLOCK, last)) for begin, end in spans]
        return np.concatenate([np.empty(0, np.int64), *parts])

    def columns(self, rank: int, count: int) -> np.ndarray:
        """Which of the first columns of a block table a rank has pages for."""
        return self.positions(rank, 0, count * PAGE)[::PAGE] // PAGE

    def counts(self, rank: int, lengths: np.ndarray) -> np.ndarray:
        """(B,) how many positions of sequences of these lengths a rank holds."""
        found = np.zeros_like(lengths)
        for first, last in self.spans(rank, -(-int(lengths.max(initial=0)) // BLOCK)):
            found += np.clip(lengths - first * BLOCK, 0, (last - first) * BLOCK)
        return found

    def of_append(self, rank: int, lengths: np.ndarray, new: Appended) -> Appended:
        """The rows of an append to sequences of these lengths that a rank stores."""
        starts = (lengths if new.sequences is None else lengths[new.sequences]).tolist()
        taken = [new.k.shape[2]] * len(starts) if new.rows is None else new.rows.tolist()
        places = [self.positions(rank, start, start + rows) - start for start, rows in zip(starts, taken, strict=True)]
        counts = np.array([len(each) for each in places], np.int64)
        most = int(counts.max(initial=0))
        index = np.zeros((len(places), most), np.int64)
        for line, each in zip(index, places, strict=True):
            line[: len(each)] = each
        if len(index) and (index == index[:1]).all():
            k, v = (each[:, :, index[0]] for each in new[:2])
        else:
            k, v = (np.take_along_axis(each, index[:, None, :, None], 2) for each in new[:2])
        return Appended(k, v, None if (counts == most).all() else counts, new.sequences)


FEW = 16  # up to this many rows, every rank merges all of them; of more rows, each merges some, and sends the results


class Reader(reader.Reader):
    """Attention over the pages of all ranks. size: the window of the cache."""

    def __init__(self, size: int | None, transport: Transport, shares: Shares):
        super().__init__(size)
        self.transport, self.shares = transport, shares

    def decoder(self, problem: Problem, state: State, ahead: int):
        from ..engines.jit.decode import Decoder

        problem, quantized = dataclasses.replace(problem, sinks=None), state.stores.k.scales is not None
        return Decoder(problem, state.lengths, ahead, PAGE, quantized=quantized, partial=True)

    def answer(self, state: State, ready: reader.Ready, q: np.ndarray, start: np.ndarray):
        """out (B, H, Q, E), lse (B, H, Q), the same on every rank."""
        problem, decoder = ready.problem, ready.decoder
        (B, H, Q, _), E = problem.q.shape, problem.v.shape[3]
        if decoder is None:  # no rows
            return np.empty((B, H, Q, E), problem.dtype), np.empty((B, H, Q), problem.real)
        first, last = int(state.pages.first.min()) * PAGE // BLOCK, -(-int(state.lengths.max()) // BLOCK)
        ranks, rank = self.transport.ranks, self.transport.rank
        segments = [self.shares.segments(other, first, last) for other in range(ranks)]
        given = {"table": state.pages.table, "start": start, "ends": state.lengths}
        mine = [
            decoder.part(q.reshape(problem.q.shape), state.stores.pools, range(one.first, end), **given)
            for one, end in ((each, min(each.first + each.size, last)) for each in segments[rank])
        ]
        rows = [slice(0, Q)] * ranks
        if Q > FEW:
            edges = (np.arange(ranks + 1) * Q // ranks).tolist()
            rows = [slice(*edge) for edge in itertools.pairwise(edges)]
        shape, real = (B, H, rows[rank].stop - rows[rank].start), problem.real
        nothing = np.full(shape, -np.inf, real), np.zeros(shape, real), np.zeros((*shape, E), real)
        outgoing = [[array[:, :, own] for part in mine for array in part] for own in rows]
        like = [[*nothing] * len(theirs) for theirs in segments]
        received = swap_arrays(self.transport, "partial results", outgoing, like)()
        parts = [
            (segment, tuple(arrays[3 * number : 3 * number + 3]))
            for theirs, arrays in zip(segments, received, strict=True)
            for number, segment in enumerate(theirs)
        ] or [(Segment(0, 1), nothing)]
        total = merged(parts, lambda one, other: dispatch.merge_states([one, other], decoder.unit))
        found = dispatch.divide(total, decoder.unit, problem.sinks, problem.dtype)
        if Q <= FEW:
            return found
        heights = [each.stop - each.start for each in rows]
        like = [[np.empty((B, H, n, E), problem.dtype), np.empty((B, H, n), real)] for n in heights]
        of_ranks = swap_arrays(self.transport, "outputs", [found] * ranks, like)()
        out, lse = (np.concatenate(each, axis=2) for each in zip(*of_ranks, strict=True))
        return out, lse


T = TypeVar("T")
NAME = "parallel.KVCache"
ENDLESS = 1 << 62  # rows for which the state needs no pages: the pages are those of the local cache


@methods_outside_programs
class KVCache:
    """The key/value cache of one attention layer, of which each rank stores a share of the positions.

    out = softmax(score(scale · q kᵀ) where mask) v, over the keys of the row's own sequence on all ranks.

    Every rank calls the same methods with the same arguments, and gets the bits that one `regard.KVCache` gives. It
    keeps only its own positions, and sends m, l and O of each of its subtrees of them: E + 2 numbers per row and head.
    Positions are dealt to the ranks in rounds of blocks of 1024.

    Args:
        heads: the number of key/value heads, G.
        depth: the depth of the keys, D.
        value_depth: the depth of the values, E, by default D.
        batch: the number of sequences at the start, B.
        dtype: as for `regard.KVCache`.
        window: a row attends to this many keys, itself included; keys that no later row can attend to are released.
        pages: the size of the storage of this rank in pages of 128 positions; None lets it grow.
        storage: "int8" stores rows in 8 bits. None stores them in `dtype`.
        tokens: about how long a sequence will be. Up to this length a rank's positions are consecutive, and it sends
            the fewest partial results; longer ones are possible. None: any length, with shares that are equal sooner,
            and a few more partial results.
        group: the process group, or a DeviceMesh of one dimension, whose ranks share the cache; None is all.
        timeout: seconds that a rank waits for the others.

    Raises:
        Refused: an argument is invalid on any rank, or differs between ranks.
        Lost: a rank ended, or did not take part within `timeout`.

    Source:
        Shyam et al. 2024 (decoding by a tree of parts); Milakov and Gimelshein 2018.

    Examples:
        >>> import regard as rg, regard.parallel as rp
        >>> # in each of two processes, with the same q, k and v:
        >>> # cache = rp.KVCache(heads=8, depth=128, tokens=1_000_000)
        >>> # cache.append(k, v)
        >>> # out = cache.attend(q, mask=rg.causal())
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
        tokens: SupportsIndex | None = None,
        group: Any = None,
        timeout: float = SECONDS,
    ):
        options = {"batch": batch, "dtype": dtype, "window": window, "pages": pages, "storage": storage}
        transport = processes(group, timeout)

        def prepared():
            about = None if tokens is None else numbers.count(tokens, NAME, "tokens", 1)
            local = Local(heads, depth, value_depth, **options)
            version = sys.modules["regard"].__version__
            # `pages` may differ between ranks: what does not fit on one raises Refused on all.
            terms = {"the version of regard": version, "the cache": _described(local), "tokens": f"{about}"}
            return (local, Shares.of(transport.ranks, about)), terms

        self._transport = transport
        self._local, self._shares = agreed(transport, NAME, prepared)
        self.heads, self.depth, self.value_depth = self._local.heads, self._local.depth, self._local.value_depth
        self.dtype, self.storage = self._local.dtype, self._local.storage
        self.window, self.pages = self._local.window, self._local.pages
        self._reader = Reader(self.window, transport, self._shares)
        nothing = np.zeros(len(self._local), np.int64)
        # Lengths and the last append, over all ranks; pages and their content are those of the local cache.
        self._state = State(Pages.empty(len(nothing)), self._local._state.stores, nothing, nothing, spare=ENDLESS)

    def __len__(self) -> int:
        """The number of sequences."""
        return len(self._state.lengths)

    def __repr__(self):
        transport, own = self._transport, int(self._local.lengths.sum())
        return (
            f"KVCache({_described(self._local)}; lengths {self.lengths.tolist()}; rank {transport.rank} of "
            f"{transport.ranks}: {own:,} of {int(self.lengths.sum()):,} positions, {self.nbytes:,} bytes)"
        )

    @property
    def lengths(self) -> np.ndarray:
        """(B,) how many positions each sequence has appended, on all ranks together."""
        return self._state.lengths.copy()

    @property
    def newest_start(self) -> np.ndarray:
        """(B,) the position of the first row of the last append: the default query_start of `attend`."""
        return self._state.start.copy()

    @property
    def nbytes(self) -> int:
        """Bytes of the storage of this rank."""
        return self._local.nbytes

    def held(self, sequence: SupportsIndex) -> np.ndarray:
        """The positions of a sequence that this rank holds, ascending.

        Args:
            sequence: its number, from 0, or negative from the end.

        Returns:
            The positions, int64, without those that a window has released.
        """
        number = int(checked_sequences(sequence, len(self))[0])
        first, last = int(self._state.pages.first[number]) * PAGE, int(self._state.lengths[number])
        return self._shares.positions(self._transport.rank, first, last)

    # ---- appending ---------------------------------------------------------------------------------------------------

    def append(
        self,
        k: ArrayLike,
        v: ArrayLike,
        rows: ArrayLike | None = None,
        *,
        sequences: SupportsIndex | ArrayLike | None = None,
    ) -> None:
        """Appends keys and values to each sequence, or to some of them: each rank stores those of its positions.

        Args:
            k: (…, G, new, D) keys in the dtype of the cache, the same on every rank.
            v: (…, G, new, E) values, the same on every rank.
            rows: (B,) or (n,) the number of new rows of each sequence, if they differ; the rest is padding.
            sequences: the numbers of n different sequences, which k, v and rows are for. None means all.

        Raises:
            Refused: on every rank, as for `regard.KVCache.append` on one of them; or k and v differ between ranks.
        """
        state, local = self._state, self._local

        def prepared():
            sizes = len(self), self.heads, self.depth, self.value_depth
            new = checked_append(k, v, rows, sequences, sizes, self.dtype)
            mine = self._shares.of_append(self._transport.rank, state.lengths, new)
            if self.pages is not None:  # whether they fit is known before any rank appends
                appended(local._now, mine, self.window, self.pages)
            what = {"the new keys": _content(new.k, new.rows), "the new values": _content(new.v, new.rows)}
            return (new, mine), what | {"the chosen sequences": _numbers(new.sequences)}

        new, mine = self._agreed("append", prepared)
        if mine.k.shape[2]:
            local.append(mine.k, mine.v, mine.rows, sequences=mine.sequences)
        first, chosen = state.pages.first, slice(None) if new.sequences is None else new.sequences
        if self.window is not None:
            before = state.lengths[chosen]
            first = first.copy()
            first[chosen] = np.clip((before - self.window + 1) // PAGE, first[chosen], columns(before))
        pages = dataclasses.replace(state.pages, first=first)
        self._state = appended(state._replace(pages=pages), new, None, None)[0]

    def truncate(self, lengths: ArrayLike) -> None:
        """Removes the last rows of sequences, as after speculative decoding.

        Args:
            lengths: how many positions remain, one integer for all sequences or (B,).

        Raises:
            Refused: as for `regard.KVCache.truncate`, on every rank.
        """
        state = self._state

        def prepared():
            first = state.pages.first * PAGE
            target = checked_lengths(lengths, state.lengths, self.window, first, f"{NAME}.truncate")
            return target, {"the remaining lengths": _numbers(target)}

        target = self._agreed("truncate", prepared)
        self._local.truncate(self._shares.counts(self._transport.rank, target))
        start = np.minimum(state.start, target)
        choice = state.choice + int((start < state.start).any())
        self._state = state._replace(lengths=target, start=start, ragged=True, choice=choice)

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
        sequences: SupportsIndex | ArrayLike | None = None,
    ) -> ArrayT:
        """Attention of rows to the keys of their own sequences, on all ranks.

        Args:
            q: (…, H, Q, D) queries, the same on every rank; the axes before the heads are the sequences.
            mask: which keys a row may attend to, over the positions of the whole sequence.
            score: changes the logits, likewise.
            scale: the factor of q·k, by default 1/√D.
            query_start: the position of the first row, one integer, (B,) or (n,). None means the rows of the last
                append.
            batch_start: the number of the first sequence in a larger batch.
            head_start: the number of the first query head, if the cache holds some heads of a model.
            sinks: extra logits in the denominator, (H,) or (H, s).
            sequences: the numbers of n different sequences, which q is for. None means all.

        Returns:
            (…, H, Q, E) in the type and dtype of `q`, the same bits on every rank.

        Raises:
            Refused: as for `regard.KVCache.attend`, on every rank what one of them refuses; or q or another argument
                differs between ranks.
            Lost: a rank ended, or did not take part in time.
        """
        arguments = Arguments(mask, score, scale, query_start, sinks, batch_start=batch_start, head_start=head_start)
        return self._attend(q, arguments, sequences)[0]

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
        sequences: SupportsIndex | ArrayLike | None = None,
    ) -> tuple[ArrayT, ArrayT]:
        """`attend`, and the log-sum-exp of each row.

        Args:
            q: (…, H, Q, D) queries, as for `attend`, like all other arguments.
            mask: which keys a row may attend to.
            score: changes the logits.
            scale: the factor of q·k, by default 1/√D.
            query_start: the position of the first row.
            batch_start: the number of the first sequence in a larger batch.
            head_start: the number of the first query head in a larger call.
            sinks: extra logits in the denominator, (H,) or (H, s).
            sequences: which sequences q is for.

        Returns:
            out (…, H, Q, E) and lse (…, H, Q) in nats.

        Raises:
            Refused, Lost: as for `attend`.
        """
        arguments = Arguments(mask, score, scale, query_start, sinks, batch_start=batch_start, head_start=head_start)
        return self._attend(q, arguments, sequences)

    def _attend(self, q, arguments: Arguments, sequences):
        state = self._over_all_positions()

        def prepared():
            call = self._reader.checked(state, q, arguments, "jit", sequences)
            problem, sinks = call.ready.problem, call.ready.problem.sinks
            return call, {
                "the queries": _content(call.rows),
                "the mask": f"{problem.mask}",
                "the score": f"{problem.score}",
                "the scale": repr(problem.scale),
                "the sinks": "none" if sinks is None else _content(sinks),
                "the first positions": _numbers(call.start),
                "the chosen sequences": _numbers(call.ready.sequences),
            }

        return self._reader.computed(self._agreed("attend", prepared))

    def _over_all_positions(self) -> State:
        """The state with the pages of this rank at the positions of the sequences, and holes between them."""
        state, local = self._state, self._local._now
        table = np.zeros((len(self), int(columns(state.lengths).max(initial=0))), np.int32)
        own = self._shares.columns(self._transport.rank, table.shape[1])[: local.pages.table.shape[1]]
        table[:, own] = local.pages.table[:, : len(own)]
        return state._replace(pages=dataclasses.replace(state.pages, table=table), stores=local.stores)

    # ---- sequences ---------------------------------------------------------------------------------------------------

    def add(self, count: int = 1) -> None:
        """Appends empty sequences.

        Args:
            count: how many.
        """

        def prepared():
            more = numbers.count(count, f"{NAME}.add", "the number of sequences")
            return more, {"the number of new sequences": f"{more}"}

        more = self._agreed("add", prepared)
        self._local.add(more)
        self._state = added(self._state, more)._replace(spare=ENDLESS)

    def drop(self, sequences: SupportsIndex | ArrayLike) -> None:
        """Removes sequences; the remaining ones are renumbered.

        Args:
            sequences: one number or several, from 0, or negative from the end.
        """
        self._select("drop", lambda: np.setdiff1d(np.arange(len(self)), checked_sequences(sequences, len(self))))

    def reorder(self, sequences: SupportsIndex | ArrayLike) -> None:
        """Selects sequences in a new order, as beam search needs.

        Args:
            sequences: the numbers of the new sequences; a repeated one becomes several, which share their pages.
        """
        self._select("reorder", lambda: checked_sequences(sequences, len(self)))

    def _select(self, name: str, chosen: Callable[[], np.ndarray]) -> None:
        def prepared():
            found = chosen()
            return found, {"the remaining sequences": _numbers(found)}

        found = self._agreed(name, prepared)
        self._local.reorder(found)
        state = shown(self._state, found)
        self._state = state._replace(choice=state.choice + 1)

    def _agreed(self, method: str, prepare: Callable[[], tuple[T, dict[str, str]]]) -> T:
        """What `prepare` returns, once all ranks are about to do the same, after the same calls."""

        def prepared():
            found, terms = prepare()
            return found, {"the method": method, "the lengths before": _numbers(self._state.lengths)} | terms

        return agreed(self._transport, f"{NAME}.{method}", prepared)


def _described(local: Local) -> str:
    """Sizes and kind of a cache."""
    depth = f"{local.depth}" if local.depth == local.value_depth else f"{local.depth} and {local.value_depth}"
    stored = f"{local.dtype}" if local.storage is None else f"{local.dtype} in {local.storage}"
    return f"{local.heads} heads × {depth}, {stored}" + ("" if local.window is None else f", window {local.window}")


def _content(array: np.ndarray, rows: np.ndarray | None = None) -> str:
    """The dtype, shape and content of an array in a short text. rows (n,): padding may differ between ranks."""
    parts = [array] if rows is None else [each[:, :taken] for each, taken in zip(array, rows, strict=True)]
    digest = hashlib.sha256()
    for each in parts:
        digest.update(each.tobytes())
    taken = "" if rows is None else f", rows {rows.tolist()}"
    return f"{array.dtype} {list(array.shape)}{taken}, content {digest.hexdigest()[:12]}"


def _numbers(chosen: np.ndarray | None) -> str:
    return "all" if chosen is None else f"{chosen.tolist()}"


def spread(
    caches: Iterable[Any], *, tokens: SupportsIndex | None = None, group: Any = None, timeout: float = SECONDS
) -> list[KVCache]:
    """Caches like these empty ones, one for each layer of a model, whose positions are spread over ranks.

    Args:
        caches: empty caches of type `regard.KVCache`, such as `model.cache(batch)`.
        tokens: about how long a sequence will be, as for `regard.parallel.KVCache`.
        group: the process group, or a DeviceMesh of one dimension; None is all processes.
        timeout: seconds that a rank waits for the others.

    Returns:
        A `regard.parallel.KVCache` for each of them.

    Raises:
        Refused: caches of another kind, such as those on a GPU, or caches that hold positions already.
        Lost: a rank ended, or did not take part within `timeout`.

    Examples:
        >>> import regard.parallel as rp
        >>> from regard.models import Config, LanguageModel, generate
        >>> model = LanguageModel(Config(vocabulary=256, d_model=32, layers=2, heads=4)).eval()
        >>> # in each process:
        >>> # generate(model, [prompt], tokens=100, greedy=True, cache=rp.spread(model.cache(1), tokens=100_000))
    """
    transport = processes(group, timeout)
    return [
        KVCache(
            cache.heads,
            cache.depth,
            cache.value_depth,
            batch=len(cache),
            dtype=str(cache.dtype),
            window=cache.window,
            pages=cache.pages,
            storage=cache.storage,
            tokens=tokens,
            group=transport,
        )
        for cache in agreed(transport, "parallel.spread", lambda: _checked(caches))
    ]


def _checked(caches: Iterable[Any]) -> tuple[list[Local], dict[str, str]]:
    found = list(caches)
    unknown = [type(each).__name__ for each in found if type(each) is not Local]
    if unknown:
        raise refuse(
            "parallel.spread",
            "only the caches of layers on the CPU can be spread",
            ", ".join(dict.fromkeys(unknown)),
            "regard.KVCache",
            "pass model.cache(batch) of a language model on the CPU",
        )
    filled = [number for number, each in enumerate(found) if each.lengths.any()]
    if filled:
        raise refuse(
            "parallel.spread",
            "a cache holds positions already",
            f"cache {filled[0]} with lengths {found[filled[0]].lengths.tolist()}",
            "empty caches",
            "spread them before the first tokens: rp.spread(model.cache(batch))",
        )
    return found, {"the number of caches": f"{len(found)}"}
