"""Attention over the positions of all ranks: each computes undivided results over its subtrees, and all merge them.

A rank sends m, l and O of each of its subtrees: E + 2 numbers per row and head, whatever the number of keys. They are
merged in the tree over positions, as one process merges its pieces, so the result has the same bits.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from ...api.kv_cache import reader
from ...api.kv_cache.pages import PAGE
from ...api.kv_cache.state import State
from ...engines import dispatch
from ...language.problem import Problem
from ..context.routes import Segment, merged
from ..exchange.transport import Transport, as_bytes
from .shares import BLOCK, Shares

FEW = 16  # up to this many rows, every rank merges all of them; of more rows, each merges some, and sends the results
Partial = tuple[np.ndarray, ...]  # maximum (B, H, Q), total (B, H, Q), values (B, H, Q, E)


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
            tuple(decoder.part(q.reshape(problem.q.shape), state.stores.pools, range(one.first, end), **given))
            for one, end in ((each, min(each.first + each.size, last)) for each in segments[rank])
        ]
        rows = [slice(0, Q)] * ranks
        if Q > FEW:
            edges = np.arange(ranks + 1) * Q // ranks
            rows = [slice(*edge) for edge in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True)]
        height = rows[rank].stop - rows[rank].start
        shape, real = (B, H, height), problem.real
        nothing = np.full(shape, -np.inf, real), np.zeros(shape, real), np.zeros((*shape, E), real)
        parts = self._parts(segments, mine, rows, nothing) or [(Segment(0, 1), nothing)]
        total = merged(parts, lambda one, other: dispatch.merge_states([one, other], decoder.unit))
        found = dispatch.divide(total, decoder.unit, problem.sinks, problem.dtype)
        return found if Q <= FEW else self._together(found, rows)

    def _parts(
        self, segments: list[list[Segment]], mine: list[Partial], rows: list[slice], like: Sequence[np.ndarray]
    ) -> list[tuple[Segment, Partial]]:
        """The partial results of all ranks, each rank with its rows. like: arrays of the shapes that come here."""
        rank, nothing = self.transport.rank, np.empty(0, np.uint8)
        outgoing = [
            nothing if other == rank else _bytes(array[:, :, own] for part in mine for array in part)
            for other, own in enumerate(rows)
        ]
        size = sum(each.nbytes for each in like)
        incoming = [0 if other == rank else size * len(theirs) for other, theirs in enumerate(segments)]
        received = self.transport.swap("partial results", outgoing, incoming)()
        found: list[tuple[Segment, Partial]] = []
        for other, content in enumerate(received):
            for number, segment in enumerate(segments[other]):
                if other == rank:
                    part = tuple(array[:, :, rows[rank]] for array in mine[number])
                else:
                    part = _arrays(content[number * size : (number + 1) * size], like)
                found.append((segment, part))
        return found

    def _together(self, own: tuple[np.ndarray, np.ndarray], rows: list[slice]) -> tuple[np.ndarray, np.ndarray]:
        """out and lse of all rows, of which each rank has its own."""
        rank, content = self.transport.rank, _bytes(own)
        likes = [[_room(each, one.stop - one.start) for each in own] for one in rows]
        outgoing = [content[:0] if other == rank else content for other in range(len(rows))]
        incoming = [0 if other == rank else sum(each.nbytes for each in like) for other, like in enumerate(likes)]
        received = self.transport.swap("outputs", outgoing, incoming)()
        parts = [own if other == rank else _arrays(each, likes[other]) for other, each in enumerate(received)]
        out, lse = (np.concatenate([part[which] for part in parts], axis=2) for which in (0, 1))
        return out, lse


def _room(like: np.ndarray, rows: int) -> np.ndarray:
    """An array without memory, like this one but with another number of rows."""
    return np.broadcast_to(np.zeros((), like.dtype), (*like.shape[:2], rows, *like.shape[3:]))


def _bytes(arrays) -> np.ndarray:
    return np.concatenate([np.empty(0, np.uint8), *map(as_bytes, arrays)])


def _arrays(content: np.ndarray, like: Sequence[np.ndarray]) -> tuple[np.ndarray, ...]:
    """Bytes as arrays of these shapes and dtypes, one after the other."""
    found, begin = [], 0
    for each in like:
        found.append(content[begin : begin + each.nbytes].view(each.dtype).reshape(each.shape))
        begin += each.nbytes
    return tuple(found)
