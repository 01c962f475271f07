"""Moves of tensors for torch's autograd."""

from __future__ import annotations

from typing import Any

import torch
from torch.autograd.function import once_differentiable

from .moves import Move, run


def recorded(move: Move, value: torch.Tensor, back: bool) -> torch.Tensor:
    """A tensor after a move, or before it; its gradient takes the other way."""
    return _Moved.apply(move, value, back)


class _Moved(torch.autograd.Function):
    """Every rank calls it, and its backward pass, in the same order."""

    @staticmethod
    def forward(ctx: Any, move: Move, value: torch.Tensor, back: bool) -> torch.Tensor:
        ctx.move, ctx.back = move, back
        return run(move, value.detach(), back)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor):
        return None, run(ctx.move, gradient, not ctx.back), None
