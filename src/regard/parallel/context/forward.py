"""Forward: keys and values travel to the ranks whose rows visit them, and attention is computed there.

They travel stripe by stripe of heads, each while the one before is computed. Every row is computed whole on one rank,
at its position, so it is bit-identical to one process.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from ...engines import dispatch
from ...language.checks.numbers import Starts, counted
from ...language.problem import Problem, Saved
from ..exchange import Redistribution, Transport, sparse, swap_arrays, write
from ..placement import Placement
from .routes import Routes, Rows, routes_of


class Here(NamedTuple):
    """What this rank does in a call: the tokens that it holds, and the rows that it computes.

    whole: the problem over all tokens, whose arrays have no memory. stripe: key heads that travel at a time.
    """

    whole: Problem
    stripe: int
    routes: Routes
    transport: Transport
    held: Rows
    computed: Rows

    @classmethod
    def of(cls, whole: Problem, stripe: int, place: Placement, transport: Transport, *, gradients: bool) -> Here:
        tokens, routes = whole.dims["Q"], routes_of(whole, place, gradients)
        held, computed = (Rows(np.flatnonzero(of == transport.rank), tokens) for of in (routes.owner, routes.worker))
        return cls(whole, stripe, routes, transport, held, computed)

    @property
    def stripes(self) -> list[slice]:
        """The key heads of each stripe."""
        G = self.whole.dims["G"]
        return [slice(first, min(first + self.stripe, G)) for first in range(0, G, self.stripe)]

    def queries(self, heads: slice) -> slice:
        """The query heads of some key heads."""
        group = self.whole.dims["H"] // self.whole.dims["G"]
        return slice(heads.start * group, heads.stop * group)

    def part(self, heads: slice, q: np.ndarray, k: np.ndarray, v: np.ndarray, start: int) -> Problem:
        """The problem of the rows from position `start` on, in some key heads; q has these heads and rows.

        Rules, tables and dropout count positions and heads of the whole call.
        """
        whole, rows = self.whole, self.queries(heads)
        starts = Starts(head=rows.start or None)
        mask, score = (None if rule is None else counted(rule, starts) for rule in (whole.mask, whole.score))
        dropout = whole.dropout
        if dropout is not None:
            dropout = replace(dropout, head_start=dropout.head_start + rows.start)
        sinks = None if whole.sinks is None else whole.sinks[rows]
        B, H = q.shape[:2]
        return replace(
            whole, q=q, k=k, v=v, mask=mask, score=score, dropout=dropout, sinks=sinks, starts=starts,
            query_start=np.full(B, start, np.int64), lead=(B, H),
        )  # fmt: skip

    def lent(self, step: str, rows: np.ndarray) -> np.ndarray:
        """Rows (B, H, n, d) of the tokens held here -> of the rows computed here."""
        return self._loans().exchange(step, rows) if self.routes.moved else rows

    def returned(self, step: str, rows: np.ndarray) -> np.ndarray:
        """Rows (B, H, m, d) of the rows computed here -> of the tokens held here."""
        return self._loans().exchange(step, rows, back=True) if self.routes.moved else rows

    def _loans(self) -> Redistribution:
        rank, ranks, every = self.transport.rank, range(self.routes.ranks), slice(None)
        heads = self.whole.dims["H"]
        take = [[(every, at) for at, _ in self.held.runs(self.routes.lent(rank, other))] for other in ranks]
        put = [[(every, at) for at, _ in self.computed.runs(self.routes.lent(other, rank))] for other in ranks]
        return Redistribution(self.transport, "rows", take, put, ((heads, len(self.held)), (heads, len(self.computed))))

    @property
    def visited(self) -> list[np.ndarray]:
        """The pages that the rows of each span visit."""
        return self.routes.visited[self.transport.rank]

    @property
    def spans(self) -> list[tuple[slice, int]]:
        """Of each run of rows that is computed at once: its place among the computed rows, and its first position."""
        found = []
        for first, last in self.routes.spans[self.transport.rank]:
            ((here, there),) = self.computed.runs(np.arange(first, last))
            found.append((here, there.start))
        return found


def named(heads: slice) -> str:
    """Some key heads in words."""
    last = heads.stop - 1
    return f"key head {last}" if heads.start == last else f"key heads {heads.start} to {last}"


class Kept(NamedTuple):
    """What a forward pass keeps for the backward pass: the rows computed here, and the results of stripes and spans."""

    q: np.ndarray
    saved: list[list[Saved]]


def attend(here: Here, q: np.ndarray, k: np.ndarray, v: np.ndarray, keep: bool) -> tuple[np.ndarray, np.ndarray, Kept]:
    """(out (B, H, n, E), lse (B, H, n), what the backward pass needs) of the n tokens that this rank holds."""
    whole = here.whole
    B, H, E = (whole.dims[name] for name in "BHE")
    q = here.lent("queries", q)
    out = np.empty((B, H, len(here.computed), E), whole.dtype)
    lse = np.empty((B, H, len(here.computed), 1), whole.real)
    results: list[list[Saved]] = []

    def attend_stripe(heads: slice, keys: np.ndarray, values: np.ndarray) -> None:
        rows, found = here.queries(heads), []
        for span, start in here.spans:
            problem = here.part(heads, q[:, rows, span], keys, values, start)
            if keep:
                saved = dispatch.keep(problem, "jit")
                out[:, rows, span], lse[:, rows, span, 0] = saved.out, saved.sums[0]
                found.append(saved)
            else:
                lse[:, rows, span, 0] = dispatch.solve(problem, "jit", out[:, rows, span])[1]
        results.append(found)

    each_stripe(here, k, v, attend_stripe)
    if not keep:
        q = np.empty(0, whole.dtype)  # which frees the rows of others before their results travel
    return here.returned("outputs", out), here.returned("lse", lse)[..., 0], Kept(q, results)


def each_stripe(
    here: Here, k: np.ndarray, v: np.ndarray, compute: Callable[[slice, np.ndarray, np.ndarray], None]
) -> None:
    """Calls compute(heads, keys, values) for each stripe of key heads, with keys and values at their positions, (B,
    heads, tokens, …). The next stripe travels meanwhile.

    A stripe is freed before the next one is placed: at any time there is one, with the bytes of one that travels.
    """
    stripes = here.stripes
    waiting = [_sent(here, stripes[0], k, v)]
    for number, heads in enumerate(stripes):
        found = waiting.pop()()
        if number + 1 < len(stripes):
            waiting.append(_sent(here, stripes[number + 1], k, v))
        compute(heads, *found)
        del found


def _sent(here: Here, heads: slice, k: np.ndarray, v: np.ndarray) -> Callable[[], tuple[np.ndarray, np.ndarray]]:
    """Begins to exchange a stripe; returns a function that waits for it, and places what came."""
    rank, routes, whole = here.transport.rank, here.routes, here.whole
    B, Q, D, E = (whole.dims[name] for name in "BQDE")
    keys, values = (sparse((B, heads.stop - heads.start, Q, depth), whole.dtype) for depth in (D, E))
    everything = Rows(np.arange(len(routes.owner)), Q)
    outgoing, incoming = [], []
    for other in range(routes.ranks):
        going, coming = here.held.runs(routes.travel(rank, other)), everything.runs(routes.travel(other, rank))
        outgoing.append([each[:, heads, held] for held, _ in going for each in (k, v)])
        incoming.append([each[:, :, position] for position, _ in coming for each in (keys, values)])
    wait = swap_arrays(here.transport, f"keys and values of {named(heads)}", outgoing, incoming)

    def placed() -> tuple[np.ndarray, np.ndarray]:
        for into, arrays in zip(incoming, wait(), strict=True):
            write(into, arrays)
        return keys, values

    return placed
