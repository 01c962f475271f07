"""Forward: keys and values travel to the ranks whose rows visit them, and attention is computed there.

They travel stripe by stripe of heads, each while the one before is computed. Every row is computed whole on one rank,
at its position, so it is bit-identical to one process.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from ...engines import dispatch
from ...engines.dispatch import Saved
from ..exchange.transport import Transport, parts_of
from ..work import PAGE
from .call import Call, part_of
from .pages import Rows, sparse
from .routes import Routes


class Here(NamedTuple):
    """What this rank does in a call: the tokens that it holds, and the rows that it computes."""

    call: Call
    routes: Routes
    transport: Transport
    held: Rows
    computed: Rows

    @classmethod
    def of(cls, call: Call, routes: Routes, transport: Transport) -> Here:
        tokens = call.whole.dims["Q"]
        held, computed = (Rows(np.flatnonzero(of == transport.rank), tokens) for of in (routes.owner, routes.worker))
        return cls(call, routes, transport, held, computed)

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
    q = lent(here, "queries", q)
    out = np.empty((B, H, len(here.computed), E), whole.dtype)
    lse = np.empty((B, H, len(here.computed), 1), whole.real)
    results: list[list[Saved]] = []

    def attend_stripe(heads: slice, keys: np.ndarray, values: np.ndarray) -> None:
        rows, found = here.call.queries(heads), []
        for span, start in here.spans:
            problem = part_of(here.call, heads, q[:, rows, span], keys, values, start)
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
    return returned(here, "outputs", out), returned(here, "lse", lse)[..., 0], Kept(q, results)


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
    others = [other for other in range(routes.ranks) if other != rank]
    shapes = [(whole.dims["B"], heads.stop - heads.start, depth) for depth in (whole.dims["D"], whole.dims["E"])]
    coming = [routes.travel(other, rank) if other in others else np.empty(0, np.int64) for other in range(routes.ranks)]

    def bytes_of(pages: np.ndarray) -> int:
        return len(Rows(pages, whole.dims["Q"])) * sum(B * h * d for B, h, d in shapes) * whole.dtype.itemsize

    sizes = [bytes_of(pages) for pages in coming]
    going = [routes.travel(rank, other) if other in others else np.empty(0, np.int64) for other in range(routes.ranks)]
    outgoing = parts_of([bytes_of(pages) for pages in going])
    for pages, part in zip(going, outgoing, strict=True):
        begin = 0
        for array, (B, h, d) in zip((k, v), shapes, strict=True):
            end = begin + B * h * d * len(Rows(pages, whole.dims["Q"])) * whole.dtype.itemsize
            here.held.take(array[:, heads], pages, part[begin:end].view(whole.dtype).reshape(B, h, -1, d))
            begin = end
    wait = here.transport.swap(f"keys and values of {here.call.named(heads)}", outgoing, sizes)

    def placed() -> tuple[np.ndarray, np.ndarray]:
        everything = Rows(np.arange(len(routes.owner)), whole.dims["Q"])
        found = [sparse((B, h, len(everything), d), whole.dtype) for B, h, d in shapes]
        own = routes.kept(rank)
        for array, source in zip(found, (k, v), strict=True):
            for local, position in here.held.runs(own):
                array[:, :, position] = source[:, heads, local]
        for pages, received in zip(coming, wait(), strict=True):
            begin, tokens = 0, len(Rows(pages, whole.dims["Q"]))
            for array, (B, h, d) in zip(found, shapes, strict=True):
                end = begin + B * h * tokens * d * whole.dtype.itemsize
                everything.put(array, pages, received[begin:end].view(whole.dtype).reshape(B, h, tokens, d))
                begin = end
        return found[0], found[1]

    return placed


def lent(here: Here, step: str, rows: np.ndarray) -> np.ndarray:
    """Rows (B, h, n, d) of the tokens held here -> of the rows computed here."""
    return _moved(here, step, rows, here.held, here.computed, lambda routes, a, b: routes.lent(a, b))


def returned(here: Here, step: str, rows: np.ndarray) -> np.ndarray:
    """Rows (B, h, m, d) of the rows computed here -> of the tokens held here."""
    return _moved(here, step, rows, here.computed, here.held, lambda routes, a, b: routes.lent(b, a))


def _moved(here: Here, step: str, rows: np.ndarray, source: Rows, target: Rows, between: Callable) -> np.ndarray:
    """Rows as the ranks have them before -> as they have them after; between(routes, from, to) are the pages."""
    if not here.routes.moved:
        return rows
    rank, (B, h, _, d) = here.transport.rank, rows.shape
    coming = [between(here.routes, other, rank) for other in range(here.routes.ranks)]
    going = [between(here.routes, rank, other) for other in range(here.routes.ranks)]
    here_still, going[rank] = coming[rank], coming[rank][:0]
    size = B * h * d * rows.itemsize
    counts = [target.count(pages) for pages in coming]
    outgoing = parts_of([size * source.count(pages) for pages in going])
    for pages, part in zip(going, outgoing, strict=True):
        source.take(rows, pages, part.view(rows.dtype).reshape(B, h, -1, d))
    sizes = [0 if other == rank else count * size for other, count in enumerate(counts)]
    wait = here.transport.swap(step, outgoing, sizes)
    del outgoing, part
    found = sparse((B, h, len(target), d), rows.dtype)
    for there, place in zip(source.runs(here_still), target.runs(here_still), strict=True):
        found[:, :, place[0]] = rows[:, :, there[0]]
    for other, received in enumerate(wait()):
        if sizes[other]:
            target.put(found, coming[other], received.view(rows.dtype).reshape(B, h, counts[other], d))
    return found


def padded(tokens: int) -> int:
    """Tokens of whole pages."""
    return -(-tokens // PAGE) * PAGE
