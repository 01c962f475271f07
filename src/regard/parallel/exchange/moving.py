"""Moves of arrays, and of tensors with autograd."""

from __future__ import annotations

from typing import Any

from ...common.arrays import is_tensor
from .moves import Move, run


def moved(move: Move, value: Any, *, back: bool = False) -> Any:
    """An array or tensor (…, heads, tokens, depth) after a move, or before it (`back`); autograd moves gradients."""
    if is_tensor(value):
        from .moves_autograd import recorded

        return recorded(move, value, back)
    return run(move, value, back)
