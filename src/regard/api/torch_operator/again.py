"""Eager calls with gradients that are like an earlier one: checks and plans are known, only addresses are new.

The backward pass of a few rows takes less time than the checks of its tensors, which are Python. Tensors that are not
as in an earlier call are checked as in eager.py.
"""

from __future__ import annotations

import torch

from ...engines import fast_path
from ...engines.fast_path import Kind
from .operator import Forward, gradients
from .transforms import once


class _Again(torch.autograd.Function):
    """A call of a known kind; autograd keeps its tensors, as in eager.py."""

    @staticmethod
    def forward(ctx, kind: Kind, q, k, v, *given):
        kept = fast_path.keep(kind, q, k, v, *given)
        ctx.kind = kind
        ctx.save_for_backward(*given, q, k, v, *kept)
        return kept[0]

    @staticmethod
    def backward(ctx, dout):
        kind, needs, count = ctx.kind, ctx.needs_input_grad[1:4], len(ctx.kind.tables)
        saved = ctx.saved_tensors  # read once: a checkpoint computes them again each time
        given, tensors = saved[:count], (*saved[count:], dout)
        if torch.is_grad_enabled():
            found = once(lambda *tensors: _checked(kind, given, tensors), *tensors)
        else:
            found = fast_path.pull_back(kind, given, *tensors) or _checked(kind, given, tensors)
        return None, *(part if needed else None for part, needed in zip(found, needs, strict=True)), *[None] * count


def _checked(kind: Kind, given: tuple, tensors: tuple) -> list[torch.Tensor]:
    """The gradients of q, k and v; the next call with such tensors need not be checked."""
    (q, k, v, out, sums, *_), problem = tensors, kind.problem(*tensors[:3], *given)
    passed = Forward(tensors[-1], None, out, sums, tensors[5])
    found = gradients(problem, kind.engine, (True, True, True, False), passed, (q, k, v, None))
    fast_path.learn(kind, problem, given, *tensors)
    return found


# Function.apply also binds default arguments. `forward` has none, and binding takes longer than the rest of `apply`.
again = super(torch.autograd.Function, _Again).apply
