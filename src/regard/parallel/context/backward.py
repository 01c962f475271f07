"""Backward: dq of a row is complete where the row is computed; dk and dv are sums over the rows of several ranks.

Each rank sums over the subtrees of the tree of law 11 that its rows make up, and sends these sums, in the dtype of
sums, to the owners of the keys, which merge them in the tree and round once. Gradients of tables and sinks are float64
sums of the same subtrees; every rank receives all of them and merges them in the same order.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ...engines import dispatch
from ...language.expr import Table
from ..exchange.transport import as_bytes
from ..work import PAGE
from .call import part_of
from .forward import Here, Kept, each_stripe, lent, padded, returned
from .pages import sparse
from .routes import Pages, Segment, add_pages, merged


class Found(NamedTuple):
    """Gradients of the tokens held here, and of tables and sinks (float64, the same on every rank)."""

    q: np.ndarray
    k: np.ndarray
    v: np.ndarray
    tables: dict[Table, np.ndarray]
    sinks: np.ndarray | None


def pull_back(
    here: Here,
    kept: Kept,
    k: np.ndarray,
    v: np.ndarray,
    *,
    dout: np.ndarray,
    dlse: np.ndarray | None,
    wanted: list[Table],
) -> Found:
    """The gradients of Σ out · dout + Σ lse · dlse, summed over the rows of all ranks."""
    whole = here.call.whole
    dout = lent(here, "gradients of outputs", dout)
    if dlse is not None:
        dlse = lent(here, "gradients of lse", dlse[..., None])[..., 0]
    dq = np.empty((*dout.shape[:3], whole.dims["D"]), whole.dtype)
    dk, dv = (np.empty((*each.shape[:2], len(here.held), each.shape[3]), whole.dtype) for each in (k, v))
    small: list[list[np.ndarray]] = []  # gradients of tables and sinks, by stripe and span

    def pull_back_stripe(heads: slice, keys: np.ndarray, values: np.ndarray) -> None:
        rows, sums, saved = here.call.queries(heads), [], kept.saved[len(small)]
        small.append([])
        for (span, start), result, pages in zip(here.spans, saved, here.visited, strict=True):
            problem = part_of(here.call, heads, kept.q[:, rows, span], keys, values, start)
            tokens, (into_k, into_v) = keys.shape[2], (_room(each, whole.real) for each in (keys, values))
            found = dispatch.pull_back(
                problem,
                result,
                dout[:, rows, span],
                None if dlse is None else dlse[:, rows, span],
                wanted,
                (into_k[:, :, :tokens], into_v[:, :, :tokens]),
            )
            dq[:, rows, span] = found.q
            sums.append(Pages(pages, (_pages(into_k, pages), _pages(into_v, pages))))
            small[-1].append(_flat(found.tables, wanted, found.sinks))
        dk[:, heads], dv[:, heads] = _at_owners(here, heads, sums)

    each_stripe(here, k, v, pull_back_stripe)
    tables, sinks = _everywhere(here, small, wanted)
    return Found(returned(here, "gradients of queries", dq), dk, dv, tables, sinks)


def _room(like: np.ndarray, dtype: np.dtype) -> np.ndarray:
    B, h, tokens, d = like.shape
    return sparse((B, h, padded(tokens), d), dtype)


def _pages(array: np.ndarray, pages: np.ndarray) -> np.ndarray:
    """Pages of an array (B, h, pages · 128, d), as (n, B, h, 128, d)."""
    B, h, tokens, d = array.shape
    return np.moveaxis(array.reshape(B, h, tokens // PAGE, PAGE, d)[:, :, pages], 2, 0)


def _at_owners(here: Here, heads: slice, sums: list[Pages]) -> tuple[np.ndarray, np.ndarray]:
    """dk and dv in some heads for the tokens held here, summed over the rows of all ranks, in the dtype of the call.

    sums: of each span of this rank.
    """
    whole, routes, rank, held = here.call.whole, here.routes, here.transport.rank, here.held
    B, count, size = whole.dims["B"], heads.stop - heads.start, whole.real.itemsize
    shapes = [(B, count, PAGE, depth) for depth in (whole.dims["D"], whole.dims["E"])]
    bytes_of = [int(np.prod(shape)) * size for shape in shapes]  # of a page
    outgoing = [np.empty(0, np.uint8)] * routes.ranks
    incoming = [0] * routes.ranks
    for other in range(routes.ranks):
        if other != rank:
            sent = [
                as_bytes(each[at])
                for pages, at in zip(sums, routes.visited_of(rank, other), strict=True)
                for each in pages.sums
            ]
            outgoing[other] = np.concatenate([*sent, outgoing[other]])
            incoming[other] = sum(bytes_of) * sum(map(len, routes.visited_of(other, rank)))
    step = f"gradients of {here.call.named(heads)}"
    received = here.transport.swap(step, outgoing, incoming)()
    parts: list[tuple[Segment, Pages]] = []
    for other, content in enumerate(received):
        begin = 0
        for number, at in enumerate(routes.visited_of(other, rank)):
            found = [] if other != rank else [each[at] for each in sums[number].sums]
            for shape, each in zip(shapes, bytes_of, strict=True) if other != rank else ():
                end = begin + len(at) * each
                found.append(content[begin:end].view(whole.real).reshape(len(at), *shape))
                begin = end
            if len(at):
                segment = routes.segment(routes.spans[other][number])
                parts.append((segment, Pages(routes.visited[other][number][at], tuple(found))))
    results = [np.zeros((B, count, len(held), shape[3]), whole.dtype) for shape in shapes]
    if parts:
        total = merged(parts, add_pages)
        for result, array in zip(results, total.sums, strict=True):
            for number, page in zip(total.numbers, array, strict=True):
                ((local, _),) = held.runs(np.array([number]))
                result[:, :, local] = page[:, :, : local.stop - local.start]
    return results[0], results[1]


def _flat(tables: dict[Table, np.ndarray], wanted: list[Table], sinks: np.ndarray | None) -> np.ndarray:
    """The gradients of tables and sinks as one array of float64."""
    parts = [tables[table].ravel() for table in wanted] + ([] if sinks is None else [sinks.ravel()])
    return np.concatenate([np.asarray(each, np.float64) for each in parts]) if parts else np.empty(0)


def _everywhere(
    here: Here, totals: list[list[np.ndarray]], wanted: list[Table]
) -> tuple[dict[Table, np.ndarray], np.ndarray | None]:
    """The gradients of tables and sinks over the rows of all ranks."""
    whole, routes = here.call.whole, here.routes
    if not wanted and whole.sinks is None:
        return {}, None
    stripes = here.call.stripes
    per_stripe = [
        sum(table.array.size for table in wanted)
        + (0 if whole.sinks is None else (heads_of.stop - heads_of.start) * whole.sinks.shape[1])
        for heads_of in map(here.call.queries, stripes)
    ]
    mine = [number for stripe in totals for number in stripe]
    message = np.concatenate(mine) if mine else np.empty(0)
    lengths = [sum(per_stripe) * len(spans) for spans in routes.spans]
    room = np.zeros(max(lengths))
    room[: message.size] = message
    texts = here.transport.gather("gradients of tables and sinks", room.tobytes())
    found = []
    for number, width in enumerate(per_stripe):
        parts = []
        for rank, text in enumerate(texts):
            spans = routes.spans[rank]
            offset = sum(per_stripe[:number]) * len(spans)
            values = np.frombuffer(text, np.float64)[offset : offset + width * len(spans)].reshape(len(spans), width)
            parts += [(routes.segment(span), part) for span, part in zip(spans, values, strict=True)]
        found.append(merged(parts, lambda one, other: one + other))
    tables, begin = {}, 0
    for table in wanted:  # only calls of one stripe have them
        tables[table] = found[0][begin : begin + table.array.size].reshape(table.array.shape)
        begin += table.array.size
    if whole.sinks is None:
        return tables, None
    sinks = [each[begin:].reshape(-1, whole.sinks.shape[1]) for each in found]
    return tables, np.concatenate(sinks)
