"""Attention over the positions of all ranks: each computes undivided results over its subtrees, and all merge them.

A rank sends m, l and O of each of its subtrees: E + 2 numbers per row and head, whatever the number of keys. They are
merged in the tree over positions, as one process merges its pieces, so the result has the same bits.
"""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np

from ...api.kv_cache import reader
from ...api.kv_cache.pages import PAGE
from ...api.kv_cache.state import State
from ...engines import dispatch
from ...language.problem import Problem
from ..context.routes import Segment, merged
from ..exchange.transport import Transport, swap_arrays
from .shares import BLOCK, Shares

FEW = 16  # up to this many rows, every rank merges all of them; of more rows, each merges some, and sends the results


class Reader(reader.Reader):
    """Attention over the pages of all ranks. size: the window of the cache."""

    def __init__(self, size: int | None, transport: Transport, shares: Shares):
        super().__init__(size)
        self.transport, self.shares = transport, shares

    def decoder(self, problem: Problem, state: State, ahead: int):
        from ...engines.jit.decode import Decoder

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
