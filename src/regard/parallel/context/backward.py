"""Backward: dq of a row is complete where the row is computed; dk and dv are sums over the rows of several ranks.

Each rank sums over the subtrees of the tree of law 11 that its rows make up, and sends these sums, in the dtype of
sums, to the owners of the keys, which merge them in the tree and round once. Gradients of tables and sinks are float64
sums of the same subtrees; every rank receives all of them and merges them in the same order.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch

from ...common.arrays import as_tensor, read_array
from ...engines import dispatch
from ...language.checks.arrays import four_axes
from ...language.expr import Table
from ..exchange import sparse, swap_arrays
from ..work import PAGE
from .forward import Here, Kept, attend, each_stripe, named
from .prepare import Prepared
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
    whole = here.whole
    dout = here.lent("gradients of outputs", dout)
    if dlse is not None:
        dlse = here.lent("gradients of lse", dlse[..., None])[..., 0]
    dq = np.empty((*dout.shape[:3], whole.dims["D"]), whole.dtype)
    dk, dv = (np.empty((*each.shape[:2], len(here.held), each.shape[3]), whole.dtype) for each in (k, v))
    small: list[list[list[np.ndarray]]] = []  # gradients of tables and sinks, by stripe and span
    padded = len(here.routes.owner) * PAGE

    def pull_back_stripe(heads: slice, keys: np.ndarray, values: np.ndarray) -> None:
        rows, sums, saved = here.queries(heads), [], kept.saved[len(small)]
        small.append([])
        for (span, start), result, pages in zip(here.spans, saved, here.visited, strict=True):
            problem = here.part(heads, kept.q[:, rows, span], keys, values, start)
            into_k, into_v = (sparse((*each.shape[:2], padded, each.shape[3]), whole.real) for each in (keys, values))
            found = dispatch.pull_back(
                problem,
                result,
                dout[:, rows, span],
                None if dlse is None else dlse[:, rows, span],
                wanted,
                (into_k[:, :, : keys.shape[2]], into_v[:, :, : keys.shape[2]]),
            )
            dq[:, rows, span] = found.q
            sums.append(Pages(pages, (_pages(into_k, pages), _pages(into_v, pages))))
            sums_of_all = [found.tables[table] for table in wanted] + ([] if found.sinks is None else [found.sinks])
            small[-1].append([np.asarray(each, np.float64) for each in sums_of_all])
        dk[:, heads], dv[:, heads] = _at_owners(here, heads, sums)

    each_stripe(here, k, v, pull_back_stripe)
    tables, sinks = _everywhere(here, small, wanted)
    return Found(here.returned("gradients of queries", dq), dk, dv, tables, sinks)


def _pages(array: np.ndarray, pages: np.ndarray) -> np.ndarray:
    """Pages of an array (B, h, pages · 128, d), as (n, B, h, 128, d)."""
    B, h, tokens, d = array.shape
    return np.moveaxis(array.reshape(B, h, tokens // PAGE, PAGE, d)[:, :, pages], 2, 0)


def _at_owners(here: Here, heads: slice, sums: list[Pages]) -> tuple[np.ndarray, np.ndarray]:
    """dk and dv in some heads for the tokens held here, summed over the rows of all ranks, in the dtype of the call.

    sums: of each span of this rank.
    """
    whole, routes, rank, held = here.whole, here.routes, here.transport.rank, here.held
    B, count = whole.dims["B"], heads.stop - heads.start
    shapes = [(B, count, PAGE, depth) for depth in (whole.dims["D"], whole.dims["E"])]
    outgoing, like = [], []
    for other in range(routes.ranks):
        mine, theirs = routes.visited_of(rank, other), routes.visited_of(other, rank)
        outgoing.append([each[at] for pages, at in zip(sums, mine, strict=True) for each in pages.sums])
        like.append([np.empty((len(at), *shape), whole.real) for at in theirs for shape in shapes])
    received = swap_arrays(here.transport, f"gradients of {named(heads)}", outgoing, like)()
    parts: list[tuple[Segment, Pages]] = []
    for other, arrays in enumerate(received):
        for number, at in enumerate(routes.visited_of(other, rank)):
            if len(at):
                segment, pages = routes.segment(routes.spans[other][number]), routes.visited[other][number][at]
                parts.append((segment, Pages(pages, tuple(arrays[2 * number : 2 * number + 2]))))
    results = [np.zeros((B, count, len(held), shape[3]), whole.dtype) for shape in shapes]
    if parts:
        total = merged(parts, add_pages)
        for result, array in zip(results, total.sums, strict=True):
            for number, page in zip(total.numbers, array, strict=True):
                ((local, _),) = held.runs(np.array([number]))
                result[:, :, local] = page[:, :, : local.stop - local.start]
    return results[0], results[1]


def _everywhere(
    here: Here, totals: list[list[list[np.ndarray]]], wanted: list[Table]
) -> tuple[dict[Table, np.ndarray], np.ndarray | None]:
    """The gradients of tables and sinks over the rows of all ranks. totals: of each stripe and span of this rank."""
    whole, routes = here.whole, here.routes
    if not wanted and whole.sinks is None:
        return {}, None
    tables, sinks = [table.array for table in wanted], [] if whole.sinks is None else [whole.sinks]
    likes = [[*tables, *(each[rows] for each in sinks)] for rows in map(here.queries, here.stripes)]
    likes = [[np.empty(each.shape) for each in arrays] for arrays in likes]
    mine = [array for stripe in totals for span in stripe for array in span]
    like = [[each for arrays in likes for _ in spans for each in arrays] for spans in routes.spans]
    received = swap_arrays(here.transport, "gradients of tables and sinks", [mine] * routes.ranks, like)()
    found = []
    for number, arrays in enumerate(likes):
        parts = []
        for spans, content in zip(routes.spans, received, strict=True):
            for at, span in enumerate(spans, number * len(spans)):
                part = content[at * len(arrays) : (at + 1) * len(arrays)]
                parts.append((routes.segment(span), part))
        found.append(merged(parts, lambda one, other: [a + b for a, b in zip(one, other, strict=True)]))
    of_tables = dict(zip(wanted, found[0], strict=False))  # only calls of one stripe have them
    return of_tables, np.concatenate([each[-1] for each in found]) if sinks else None


def recorded(found: Prepared, tensors, sinks) -> tuple[torch.Tensor, torch.Tensor]:
    """(out, lse) of a prepared call, differentiable with respect to q, k, v, sinks, and tables that the score reads."""
    q, k, v = (each if isinstance(each, torch.Tensor) else as_tensor(np.asarray(each)) for each in tensors)
    sinks = sinks if isinstance(sinks, torch.Tensor) else None
    return _Attention.apply(found, q, k, v, sinks, *(table.source for table in found.wanted))


class _Attention(torch.autograd.Function):
    """The rows of this rank; every rank calls it, and its backward pass, in the same order."""

    @staticmethod
    def forward(ctx, found: Prepared, *tensors):
        out, lse, kept = attend(found.here, *found.arrays, keep=True)
        ctx.here, ctx.lead, ctx.wanted, ctx.kept = found.here, found.lead, found.wanted, kept
        ctx.save_for_backward(*tensors)
        ctx.set_materialize_grads(False)
        return as_tensor(out.reshape(*found.lead, out.shape[-1])), as_tensor(lse.reshape(found.lead))

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, dout, dlse):
        q, k, v, sinks, *_ = ctx.saved_tensors
        batch = tuple(q.shape[:-3])
        B, H = (ctx.here.whole.dims[name] for name in "BH")
        keys, values = (four_axes(read_array(each, "attention"), batch) for each in (k, v))
        if dout is None:
            dout = q.new_zeros((*ctx.lead, v.shape[-1]))
        given = read_array(dout, "dout").reshape(B, H, -1, v.shape[-1])
        dl = None if dlse is None else read_array(dlse, "dlse").reshape(B, H, -1)
        result = pull_back(ctx.here, ctx.kept, keys, values, dout=given, dlse=dl, wanted=ctx.wanted)
        gradients = [
            as_tensor(np.ascontiguousarray(each)).reshape(like.shape)
            for each, like in zip(result[:3], (q, k, v), strict=True)
        ]
        dsinks = None
        if sinks is not None and result.sinks is not None:
            array = read_array(sinks, "sinks")
            dsinks = as_tensor(result.sinks.astype(array.dtype).reshape(array.shape))
        of_tables = [as_tensor(result.tables[table].astype(table.array.dtype)) for table in ctx.wanted]
        return None, *gradients, dsinks, *of_tables
