"""Attention over several ranks for torch's autograd: one node, whose backward pass exchanges gradients."""

from __future__ import annotations

import numpy as np
import torch

from ...common.arrays import as_tensor, read_array
from ...language.checks.arrays import four_axes
from .backward import pull_back
from .forward import attend
from .prepare import Prepared


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
        B, H = (ctx.here.call.whole.dims[name] for name in "BH")
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
