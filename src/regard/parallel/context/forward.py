"""Forward: keys and values travel to the ranks whose rows visit them, and attention is computed there.

They travel stripe by stripe of heads, each while the one before is computed. Every row is computed whole on one rank,
at its position, so it is bit-identical to one process.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from ...engines import dispatch
from ...language.problem import Saved
from ..exchange.redistribute import Redistribution
from ..exchange.transport import Transport, sparse, swap_arrays, write
from ..placement import Placement
from .pages import Rows
from .routes import Call, Routes, routes_of


class Here(NamedTuple):
    """What this rank does in a call: the tokens that it holds, and the rows that it computes."""

    call: Call
    routes: Routes
    transport: Transport
    held: Rows
    computed: Rows

    @classmethod
    def of(cls, call: Call, place: Placement, transport: Transport, *, gradients: bool) -> Here:
        tokens, routes = call.whole.dims["Q"], routes_of(call, place, gradients)
        held, computed = (Rows(np.flatnonzero(of == transport.rank), tokens) for of in (routes.owner, routes.worker))
        return cls(call, routes, transport, held, computed)

    def lent(self, step: str, rows: np.ndarray) -> np.ndarray:
        """Rows (B, H, n, d) of the tokens held here -> of the rows computed here."""
        return self._loans().exchange(step, rows) if self.routes.moved else rows

    def returned(self, step: str, rows: np.ndarray) -> np.ndarray:
        """Rows (B, H, m, d) of the rows computed here -> of the tokens held here."""
        return self._loans().exchange(step, rows, back=True) if self.routes.moved else rows

    def _loans(self) -> Redistribution:
        rank, ranks, heads, every = (
            self.transport.rank,
            range(self.routes.ranks),
            self.call.whole.dims["H"],
            slice(None),
        )
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


class Kept(NamedTuple):
    """What a forward pass keeps for the backward pass: the rows computed here, and the results of stripes and spans."""

    q: np.ndarray
    saved: list[list[Saved]]


def attend(here: Here, q: np.ndarray, k: np.ndarray, v: np.ndarray, keep: bool) -> tuple[np.ndarray, np.ndarray, Kept]:
    """(out (B, H, n, E), lse (B, H, n), what the backward pass needs) of the n tokens that this rank holds."""
    whole = here.call.whole
    B, H, E = (whole.dims[name] for name in "BHE")
    q = here.lent("queries", q)
    out = np.empty((B, H, len(here.computed), E), whole.dtype)
    lse = np.empty((B, H, len(here.computed), 1), whole.real)
    results: list[list[Saved]] = []

    def attend_stripe(heads: slice, keys: np.ndarray, values: np.ndarray) -> None:
        rows, found = here.call.queries(heads), []
        for span, start in here.spans:
            problem = here.call.part(heads, q[:, rows, span], keys, values, start)
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
    stripes = here.call.stripes
    waiting = [_sent(here, stripes[0], k, v)]
    for number, heads in enumerate(stripes):
        found = waiting.pop()()
        if number + 1 < len(stripes):
            waiting.append(_sent(here, stripes[number + 1], k, v))
        compute(heads, *found)
        del found


def _sent(here: Here, heads: slice, k: np.ndarray, v: np.ndarray) -> Callable[[], tuple[np.ndarray, np.ndarray]]:
    """Begins to exchange a stripe; returns a function that waits for it, and places what came."""
    rank, routes, whole = here.transport.rank, here.routes, here.call.whole
    B, Q, D, E = (whole.dims[name] for name in "BQDE")
    keys, values = (sparse((B, heads.stop - heads.start, Q, depth), whole.dtype) for depth in (D, E))
    everything = Rows(np.arange(len(routes.owner)), Q)
    outgoing, incoming = [], []
    for other in range(routes.ranks):
        going, coming = here.held.runs(routes.travel(rank, other)), everything.runs(routes.travel(other, rank))
        outgoing.append([each[:, heads, held] for held, _ in going for each in (k, v)])
        incoming.append([each[:, :, position] for position, _ in coming for each in (keys, values)])
    wait = swap_arrays(here.transport, f"keys and values of {here.call.named(heads)}", outgoing, incoming)

    def placed() -> tuple[np.ndarray, np.ndarray]:
        for into, arrays in zip(incoming, wait(), strict=True):
            write(into, arrays)
        return keys, values

    return placed
