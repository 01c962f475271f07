"""Engine "tiles": attention and its gradients by torch operations, one tile of query rows at a time."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch.autograd.function import once_differentiable

from ...language.analysis import adjoints
from ...language.expr import Read, Table
from ...language.expr import score as the_score
from .device_call import DeviceCall
from .lowering import lower
from .tile_softmax import Block, Denominator, Rules, Sum, block, hostile, left_over, shares, summed, tiles


def attend(call: DeviceCall) -> tuple[torch.Tensor, torch.Tensor]:
    """(out (B, H, Q, E), lse (B, H, Q)), differentiable with respect to q, k, v, sinks and the tables."""
    return _Streamed.apply(call, call.q, call.k, call.v, call.sinks, *call.tables.values())


class _Streamed(torch.autograd.Function):
    @staticmethod
    def forward(ctx, call: DeviceCall, q, k, v, sinks, *tables):
        out, below = _forward(call)
        ctx.problem, ctx.read = call.problem, tuple(call.tables)
        ctx.save_for_backward(q, k, v, sinks, *tables, out, *below)
        ctx.set_materialize_grads(False)
        return out.to(q.dtype), below.lse

    @staticmethod
    @once_differentiable
    def backward(ctx, dout, dlse):
        q, k, v, sinks, *tables, out, top, total = ctx.saved_tensors
        call = DeviceCall(ctx.problem, q, k, v, sinks, dict(zip(ctx.read, tables, strict=True)))
        learned = [table for table, needed in zip(ctx.read, ctx.needs_input_grad[5:], strict=True) if needed]
        dq, dk, dv, dsinks, dtables = _backward(call, out, Denominator(top, total), dout, dlse, learned)
        found = (dq.to(q.dtype), dk.to(k.dtype), dv.to(v.dtype), None if sinks is None else dsinks.to(sinks.dtype))
        return (
            None,
            *found,
            *(
                dtables[table].to(of.dtype) if table in dtables else None
                for table, of in zip(ctx.read, tables, strict=True)
            ),
        )


def _forward(call: DeviceCall) -> tuple[torch.Tensor, Denominator]:
    """out in the dtype of sums, and the denominators."""
    B, H, Q, _ = call.q.shape
    rules = Rules(call)
    out = Sum((B, H, Q, call.v.shape[3]), call, hostile(call.v))
    top, total = (torch.zeros(B, H, Q, dtype=call.real, device=call.q.device) for _ in range(2))
    for rows, parts in tiles(call):
        below = summed(rules, rows, parts)
        top[rows.place], total[rows.place] = below
        for keys, mixed in parts:
            seen = block(rules, rows, keys, mixed)
            p = shares(seen.s, below) * left_over(rules, seen.variables)
            out.add(rows.place, p, seen.allowed, rows.per_head(call.v, keys, call))
    return out.found, Denominator(top, total)


def _backward(call: DeviceCall, out, below: Denominator, dout, dlse, learned: list[Table]):
    """dS = P ∘ (dP − δ + dlse) with dP = dout vᵀ and δ = Σ dout · out, tile by tile; in the dtype of sums."""
    dout = torch.zeros_like(out) if dout is None else dout
    spoiled = hostile(call.q, call.k, call.v, dout)
    rest = -(dout.to(call.real) * out).sum(-1) + (0 if dlse is None else dlse)
    rules = Rules(call)
    partials = adjoints(the_score if call.problem.score is None else call.problem.score)
    names = ("score", "batch", "head", "query", "key")

    def function(rule, gives=call.real):
        return lower(rule, names, call.tables, call.real, rules.whole, gives)

    steep = None if partials.get(the_score) is None else function(partials[the_score])
    reads = [
        (leaf, function(partial), [function(part, torch.int64) for part in leaf.index])
        for leaf, partial in partials.items()
        if isinstance(leaf, Read) and leaf.table in learned
    ]
    dtables = {table: torch.zeros(call.tables[table].shape, dtype=call.real, device=out.device) for table in learned}
    dq, dk, dv = (Sum(tensor.shape, call, spoiled) for tensor in (call.q, call.k, call.v))
    for rows, parts in tiles(call):
        own = Denominator(*(part[rows.place] for part in below))
        q, given, extra = rows.of(call.q, call), rows.of(dout, call), rows.of(rest, call)[..., None]
        for keys, mixed in parts:
            at = (rows.batch, rows.groups, keys)
            seen = block(rules, rows, keys, mixed)
            k, v = rows.per_head(call.k, keys, call), rows.per_head(call.v, keys, call)
            p, left = shares(seen.s, own), left_over(rules, seen.variables)
            ds = torch.where(seen.allowed, p * (given @ v.mT * left + extra), 0)
            if steep is not None:
                dlogit = call.problem.scale * _through(steep, seen, ds)
                dq.add(rows.place, dlogit, seen.allowed, k)
                dk.add(at, dlogit.mT, seen.allowed.mT, q, rows.copies)
            dv.add(at, (p * left).mT, seen.allowed.mT, given, rows.copies)
            for leaf, partial, index in reads:
                into = dtables[leaf.table]
                place = [
                    torch.clamp(part(*seen.variables).expand(ds.shape), 0, size - 1)
                    for part, size in zip(index, into.shape, strict=True)
                ]
                into.index_put_(tuple(place), _through(partial, seen, ds), accumulate=True)
    dsinks = None
    if call.sinks is not None:
        dsinks = (shares(call.sinks[:, None].to(call.real), below) * rest[..., None]).sum((0, 2))
    return dq.found, dk.found, dv.found, dsinks, dtables


def _through(partial: Callable, seen: Block, ds: torch.Tensor) -> torch.Tensor:
    """The gradient with respect to a leaf of the score, given d score' / d leaf; 0 for masked pairs."""
    return torch.where(seen.allowed, ds * partial(*seen.variables), 0)
