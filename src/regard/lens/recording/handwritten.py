"""Reads handwritten attention, softmax(q kᵀ …) v, as rules: each operation between the product and the softmax."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from operator import neg
from typing import Any

import numpy as np
import torch

from ...common.arrays import read_array
from ...language.added_masks import ORDINARY, hidden_beside, hides, range_of
from ...language.expr import Expr, Op, frozen_table, head, score
from ...language.functions import relu, square
from ...observe.handwritten import DIVISIONS
from .one_entry import added

PRODUCTS = {"matmul", "__matmul__", "bmm", "einsum"}
ALONE = {
    "__getitem__",
    "bfloat16",
    "clone",
    "contiguous",
    "detach",
    "double",
    "dropout",
    "flatten",
    "float",
    "half",
    "reshape",
    "squeeze",
    "to",
    "type",
    "type_as",
    "unflatten",
    "unsqueeze",
    "view",
}
PLUS = {"add", "__add__", "__radd__", "add_", "__iadd__"}
MINUS = {"sub", "__sub__", "sub_", "__isub__"}
TIMES = {"mul", "__mul__", "__rmul__", "mul_", "__imul__", "multiply"}
OVER = {*DIVISIONS}
POINTWISE: dict[str, Callable[[Expr], Expr]] = {"abs": abs, "neg": neg, "relu": relu, "square": square}

# An operand that broadcasts with scores of these sizes, as (H, Q, K) numbers of the batch entry; broadcast axes have
# stride 0.
Cut = Callable[[torch.Tensor, tuple[int, ...]], np.ndarray]


@dataclass
class Written:
    """The rules read so far: scale · q·k, then `score`, where `allowed` (H, Q, K); None allows every pair.

    start: the position of row 0.
    """

    start: int
    heads: int
    scale: float = 1.0
    score: Expr = score
    allowed: np.ndarray | None = None
    sinks: np.ndarray | None = None
    divided: float = 1.0  # the last divisor of the scores, if only factors were applied since
    plus: np.ndarray | None = None  # the sum of the added tensors, which becomes one table of the rule
    zeroed: Any = False  # the pairs whose scores were multiplied by 0, which a mask has to hide then

    def allow(self, seen: np.ndarray) -> bool:
        """Restricts the mask to these pairs."""
        self.allowed = seen if self.allowed is None else self.allowed & seen
        return True

    def settle(self) -> Expr:
        """The score so far, including the added tensors."""
        if self.plus is not None:
            self.score, self.plus, self.divided = added(self.score, self.plus.astype(np.float32), self.start), None, 1.0
        return self.score


def read_steps(trail, cut: Cut, heads: int, start: int) -> Written | None:
    """The rules of handwritten attention for one batch entry; None if a step is not known."""
    found = Written(start, heads)
    for name, args, kwargs, sizes in trail.steps:
        if name in ("softmax", "_softmax", "exp", "exp_"):
            found.settle()
            if np.any(found.zeroed if found.allowed is None else found.zeroed & found.allowed):
                return None
            along = kwargs.get("dim", args[1] if len(args) > 1 else -1)
            return found if along in (-1, len(sizes) - 1) else None
        if name not in ALONE | PRODUCTS and not _known(found, name, args, kwargs, sizes, cut):
            return None
    return None


def factor_of(trail) -> float | None:
    """The product of the numbers by which scores were multiplied before the softmax, whatever else was done."""
    found = Written(0, 1)
    for name, args, kwargs, _ in trail.steps:
        if name in ("softmax", "_softmax", "exp", "exp_"):
            return found.scale
        other, *_ = _other(args, kwargs) if name in TIMES | OVER else (kwargs.get("alpha", 1), False)
        if name in (*PRODUCTS, "baddbmm") or (name in TIMES | OVER and np.size(other) == 1):
            found.scale *= float(other) ** (-1 if name in OVER else 1)
        elif name in TIMES | OVER or name in ("tanh", "tanh_"):
            break
    return None


def _known(found: Written, name: str, args, kwargs, sizes, cut: Cut) -> bool:
    """Applies one torch function to the rules; returns whether it is known."""
    if name == "baddbmm":
        found.scale *= float(kwargs.get("alpha", 1))
        return _add(found, args[0], float(kwargs.get("beta", 1)), sizes, cut)
    if name in PLUS | MINUS:
        other, first = _other(args, kwargs)
        sign = float(kwargs.get("alpha", 1)) * (-1 if name in MINUS else 1)
        return not (first and name in MINUS) and _add(found, other, sign, sizes, cut)
    if name in TIMES | OVER:
        other, first = _other(args, kwargs)
        return not (first and name in OVER) and _multiply(found, other, name in OVER, sizes, cut)
    if name in ("tanh", "tanh_"):
        found.settle()
        found.scale *= found.divided  # c · tanh(s / c): s is the score before the division
        found.score = Op("tanh", found.score / found.divided if found.divided != 1 else found.score)
        return True
    if name in POINTWISE:
        found.score = POINTWISE[name](found.settle())
        found.divided = 1.0
        return True
    if name in ("masked_fill", "masked_fill_"):
        named = dict(zip(("scores", "mask", "value"), args)) | kwargs
        return _low(named["value"]) and found.allow(~cut(named["mask"], sizes).astype(bool))
    if name == "where" and len(args) == 3 and isinstance(args[0], torch.Tensor):
        chosen = cut(args[0], sizes).astype(bool)
        return _low(args[2] if args[1] is None else args[1]) and found.allow(chosen if args[1] is None else ~chosen)
    if name in ("cat", "concat", "concatenate"):
        return _append(found, args[0])
    return False


def _other(args, kwargs) -> tuple[Any, bool]:
    """The other operand of an operation on the scores, and whether it is the first operand."""
    first = bool(args) and args[0] is not None
    return next((part for part in (*args[:2], kwargs.get("other")) if part is not None), None), first


def _add(found: Written, other: Any, sign: float, sizes, cut: Cut) -> bool:
    """Adds numbers to the scores. Very low numbers are a mask; in a row without higher numbers, only those near the
    minimum of their dtype are.
    """
    if isinstance(other, torch.Tensor) and other.ndim:
        if other.ndim > 1 and other.shape[-1] == 1 < sizes[-1] and bool(other.isfinite().all()):
            return True  # a number per row, such as its largest score, does not change the weights
        numbers = sign * cut(other, sizes)
        seen = np.asarray(~hides(numbers, range_of(other.dtype)))
        seen = seen & ~hidden_beside(numbers, seen if found.allowed is None else seen & found.allowed)
        if not seen.all():
            found.allow(seen)
            numbers = np.where(seen, numbers, 0)
        found.plus = numbers if found.plus is None else found.plus + numbers
        return True
    if other is None:
        return False
    if float(other):
        found.score = found.settle() + sign * float(other)
        found.divided = 1.0
    return True


def _multiply(found: Written, other: Any, over: bool, sizes, cut: Cut) -> bool:
    if isinstance(other, torch.Tensor) and other.numel() > 1:
        numbers = cut(other, sizes)
        if (numbers == numbers[:, :1, :1]).all() and not over:  # a temperature for each head
            found.score, found.divided = frozen_table(numbers[:, 0, 0].copy(), "factor")[head] * found.settle(), 1.0
            return True
        found.zeroed = found.zeroed | (numbers == 0)
        return not over and bool(((numbers == 0) | (numbers == 1)).all())
    if other is None:
        return False
    factor = float(other)
    if found.settle() is score:
        found.scale = found.scale / factor if over else found.scale * factor
        found.divided = factor if over else 1.0
    else:
        found.score = found.score / factor if over else factor * found.score
    return True


def _low(value: Any) -> bool:
    """Whether the fill value masks a key."""
    if value is None or (isinstance(value, torch.Tensor) and value.numel() > 1):
        return False
    return bool(hides(value, ORDINARY))


def _append(found: Written, parts) -> bool:
    """Sinks: additional columns of scores, equal in every row."""
    if len(parts) != 2 or parts[0] is not None or not isinstance(parts[1], torch.Tensor) or found.sinks is not None:
        return False
    numbers = read_array(parts[1].detach().float().cpu(), "sinks")
    if numbers.ndim < 3 or numbers[..., 0, 0].size % found.heads:
        return False
    rows = numbers.reshape(-1, found.heads, *numbers.shape[-2:])
    found.sinks = rows[0, :, 0].copy()
    return bool((rows == found.sinks[None, :, None]).all())
