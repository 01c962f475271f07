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

__all__ = ["again"]


class _Again(torch.autograd.Function):
    """A call of a known kind; autograd keeps its tensors, as in eager.py."""

    @staticmethod
    def forward(ctx, kind: Kind, q, k, v):
        kept = fast_path.keep(kind, q, k, v)
        ctx.kind = kind
        ctx.save_for_backward(q, k, v, *kept)
        return kept[0]

    @staticmethod
    def backward(ctx, dout):
        kind, needs, tensors = ctx.kind, ctx.needs_input_grad[1:], ctx.saved_tensors
        if torch.is_grad_enabled():
            found = once(lambda *given: _checked(kind, given), *tensors, dout)
        else:
            found = fast_path.pull_back(kind, *tensors, dout) or _checked(kind, (*tensors, dout))
        return None, *(part if needed else None for part, needed in zip(found, needs, strict=True))


def _checked(kind: Kind, given) -> list[torch.Tensor]:
    """The gradients of q, k and v; the next call with such tensors need not be checked."""
    (*tensors, dout), problem = given, kind.problem(*given[:3])
    (q, k, v, out, sums), lost = tensors[:5], tensors[-1]
    passed = Forward(dout, None, out, sums, lost)
    found = gradients(problem, kind.engine, (True, True, True, False), passed, (q, k, v, None))
    fast_path.learn(kind, problem, *tensors, dout)
    return found


# Function.apply also binds default arguments. `forward` has none, and binding takes longer than the rest of `apply`.
again = super(torch.autograd.Function, _Again).apply
