"""Recognizes handwritten attention, softmax(q kᵀ …) v, by following each product through the torch functions called."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch.utils.weak import WeakTensorKeyDictionary

PRODUCTS = {"matmul": 0, "__matmul__": 0, "bmm": 0, "baddbmm": 1}  # the index of the first factor in the arguments
DIVISIONS = ("div", "__truediv__", "div_", "__itruediv__", "true_divide")
OVER_HEADS = ("einsum", "linear", "conv1d", "conv2d", "tensordot")  # of weights: a linear map of their heads


class Step(NamedTuple):
    """One torch function applied to the scores.

    args, kwargs: its arguments, with None in place of the scores. sizes: the shape of its output.
    """

    name: str
    args: tuple
    kwargs: dict[str, Any]
    sizes: tuple[int, ...]


@dataclass(eq=False)
class Trail:
    """The operations on a product q kᵀ. q (…, Q, D) · k (…, K, D). outside: the other inputs, such as a mask or a bias.

    seconds: the time of all operations so far. powers: what exp was taken of, which a division makes a softmax. scores:
    the input of the softmax; None before it. steps: the operations in order, the product itself first. weights: the
    factor of the values; None before that product. combined: the operation after the softmax that combined its weights
    with those of other heads, or of another softmax; None without one. repeated: whether a softmax of its weights was
    taken. order: how the axes of the output become (…, Q, E); None if they have this order.
    """

    q: torch.Tensor
    k: torch.Tensor
    outside: list[torch.Tensor] = field(default_factory=list)
    seconds: float = 0.0
    powers: torch.Tensor | None = None
    scores: torch.Tensor | None = None
    steps: list[Step] = field(default_factory=list)
    weights: torch.Tensor | None = None
    combined: str | None = None
    repeated: bool = False
    order: list[int] | None = None


class Products:
    """The tensors computed from a product of queries and keys, with weak references, so that they can be freed."""

    def __init__(self) -> None:
        self.trails: Any = WeakTensorKeyDictionary()

    def follow(self, name: str, args: tuple, kwargs: dict[str, Any], out, seconds: float) -> tuple | None:
        """Records one operation. If it was the product of weights and values, which ends an attention: its trail, its
        values (…, K, E) and its output (…, Q, E).
        """
        if not isinstance(out, torch.Tensor):
            return None
        factors, given = _factors(name, args, kwargs), tensors_in((*args, *kwargs.values()))
        for place in (1, -1) if name == "einsum" else ():  # the values may be written before the weights
            if (found := _summed(args, place, of_weights=True)) and found.source in self.trails:
                factors = found
        if factors is not None:
            source, left, right, order = factors
            trail = self.trails.get(source)
            if trail is not None and trail.scores is not None:
                trail.seconds += seconds
                trail.outside += tensors_in(args)[1:]
                trail.weights, trail.order = left, order
                return trail, right, out if order is None else out.permute(order)
            if not isinstance(right, torch.nn.Parameter) and left.ndim > 1 and right.ndim > 1:
                # Of the keyword arguments only numbers, such as the factors of a product.
                numbers = {word: part for word, part in kwargs.items() if not isinstance(part, torch.Tensor)}
                step = Step(name, args[: PRODUCTS.get(name, 0)], numbers, tuple(out.shape))
                self.trails[out] = Trail(left, right.transpose(-2, -1), given, seconds, steps=[step])
            return None
        source = next((part for part in given if part in self.trails and _alike(part, out)), None)
        if source is None:
            return None
        trail = self.trails[source]
        trail.seconds += seconds
        trail.outside += [part for part in given if part not in self.trails]
        trail.steps.append(Step(name, _without(source, args), _without(source, kwargs), tuple(out.shape)))
        if name in ("softmax", "_softmax"):
            trail.repeated = trail.scores is not None and trail.scores is not source
            trail.scores = source
        elif name in ("exp", "exp_"):
            trail.powers = source
        elif trail.scores is None and name in DIVISIONS and any(1 in part.shape[-2:] for part in given):
            trail.scores = trail.powers  # by the sum of a row, or, by mistake, of a column
        elif trail.scores is not None and name not in ("to", "type_as", "view_as"):
            weights = [part for part in given if part in self.trails and self.trails[part].scores is not None]
            if name in OVER_HEADS or len(weights) > 1:  # of other heads, or of another attention
                trail.combined = name
        self.trails[out] = trail
        return None

    def forget(self, trail: Trail) -> None:
        """Removes a complete attention with all its tensors."""
        for tensor in [tensor for tensor, found in self.trails.items() if found is trail]:
            del self.trails[tensor]


def _without(source: torch.Tensor, given: Any) -> Any:
    """Arguments with None in place of the scores, because a reference would keep them in memory."""
    if given is source:
        return None
    if isinstance(given, dict):
        return {name: _without(source, part) for name, part in given.items()}
    return type(given)(_without(source, part) for part in given) if type(given) in (tuple, list) else given


def tensors_in(values) -> list[torch.Tensor]:
    """The tensors among arguments, including those in tuples, lists and dicts."""
    found = []
    for value in values:
        if isinstance(value, torch.Tensor):
            found.append(value)
        elif isinstance(value, tuple | list | dict):
            found += tensors_in(value.values() if isinstance(value, dict) else value)
    return found


class Factors(NamedTuple):
    """The factors of a product.

    source: the left tensor as passed. left: (…, rows, inner). right: (…, inner, columns). order: the permutation of the
    output's axes to (…, rows, columns); None if they have this order.
    """

    source: torch.Tensor
    left: torch.Tensor
    right: torch.Tensor
    order: list[int] | None


def _factors(name: str, args: tuple, kwargs: dict[str, Any]) -> Factors | None:
    """The factors of a matrix product; None for any other function."""
    if name == "einsum":
        return _summed(args)
    if name not in PRODUCTS:
        return None
    found = tensors_in((*args, *{**kwargs, "out": None}.values()))[-2:]  # baddbmm has the sum before its factors
    return Factors(found[0], found[0], found[1], None) if len(found) > 1 else None


def _summed(args: tuple, step: int = 1, of_weights: bool = False) -> Factors | None:
    """The factors of an einsum that is a batch of matrix products, such as "bqhd,bkhd->bhqk", in their order, or for
    step -1 exchanged; None otherwise. Axes of the left one alone before its rows, such as the heads of a group in
    "bgrqd,bgkd->bgrqk", are batch axes along which the right one is repeated. The rows are the last of them in the
    output, or, where the left one is weights, in these.
    """
    given = tensors_in(args[1:])[::step]
    if len(given) != 2 or not isinstance(args[0], str) or "." in args[0] or "->" not in args[0]:
        return None
    ins, _, out = args[0].replace(" ", "").partition("->")
    left, right = ins.split(",")[::step]
    known = left if of_weights else out
    *repeated, rows = [axis for axis in known if axis in left and axis in out and axis not in right] or [""]
    right += "".join(repeated)
    inner = [axis for axis in left if axis in right and axis not in out]
    columns = [axis for axis in right if axis not in left]
    if not len(inner) == len(rows) == len(columns) == 1:
        return None
    batch = [axis for axis in out if axis in left and axis in right]
    a, b = [*batch, rows, *inner], [*batch, *inner, *columns]
    if sorted(a) != sorted(left) or sorted(b) != sorted(right) or (repeated and batch == repeated):
        return None  # the last is a map of heads, as in talking heads
    one = given[0].permute([left.index(axis) for axis in a])
    other = given[1][(..., *[None] * len(repeated))].permute([right.index(axis) for axis in b])
    order = [out.index(axis) for axis in (*batch, rows, *columns)]
    return Factors(given[0], one, other.expand(*one.shape[:-2], -1, -1), order)


def _alike(part: torch.Tensor, out: torch.Tensor) -> bool:
    """Whether an operation preserved the rows; leading axes may differ, and the number of keys may (sinks), but not as
    in a sum over them.
    """
    if part.ndim < 2 or out.ndim < 2 or part.shape[-2:] == out.shape[-2:]:
        return min(part.ndim, out.ndim) > 1
    return part.shape[:-1] == out.shape[:-1] and out.shape[-1] > 1
