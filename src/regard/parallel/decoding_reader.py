"""Attention over the positions of all ranks: each computes undivided results over its subtrees, and all merge them.

A rank sends m, l and O of each of its subtrees: E + 2 numbers per row and head, whatever the number of keys. They are
merged in the tree over positions, as one process merges its pieces, so the result has the same bits.

Shares say which rank holds which positions of a sequence that grows, so that they are equal and partials are few.

Positions are dealt in rounds of blocks of 1024, in each round the same number of consecutive ones to every rank. The
first round is as long as the caller expects a sequence to be; the second has the same length, and every further one is
as long as all before it. So any length is possible, and a rank with half a round more than another is the worst case.
"""

from __future__ import annotations

import dataclasses
import itertools
from typing import NamedTuple

import numpy as np

from ..api.kv_cache import reader
from ..api.kv_cache.pages import PAGE
from ..api.kv_cache.state import Appended, State
from ..engines import dispatch
from ..language.problem import Problem
from .context.routes import Segment, merged, segments
from .exchange.transport import Transport, swap_arrays

BLOCK = 1024  # positions: a piece of the kernel, of which the tree of law 11 is made


class Shares(NamedTuple):
    """The rule for a number of ranks. blocks: what each rank holds of the first round."""

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
