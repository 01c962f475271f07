"""Lineage: attention that a model writes out by hand, softmax(q kᵀ …) v, recognised from the operations as they
pass.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch.utils.weak import WeakTensorKeyDictionary

__all__ = ["Ended", "Lineage", "Step", "Trail", "tensors_in"]

PRODUCTS = {"matmul": 0, "__matmul__": 0, "bmm": 0, "baddbmm": 1}  # where the two factors begin among the arguments


class Ended(NamedTuple):
    """An attention that came to its end, its values (…, K, E) and what came out (…, Q, E)."""

    trail: Trail
    v: torch.Tensor
    out: torch.Tensor


class Step(NamedTuple):
    """One function of torch on the way. args, kwargs: as given, with None in place of the scores themselves. sizes: of
    its output.
    """

    name: str
    args: tuple
    kwargs: dict[str, Any]
    sizes: tuple[int, ...]


@dataclass(eq=False)
class Trail:
    """What became of a product q kᵀ. q (…, Q, D) · k (…, K, D). outside: all tensors that came in, such as a mask or a
    bias.

    seconds: of all operations so far. scores: what the softmax was given; None before it. steps: what was done to the
    product, first the product itself, in order. weights: what the values were multiplied by; None before that.
    """

    q: torch.Tensor
    k: torch.Tensor
    outside: list[torch.Tensor] = field(default_factory=list)
    seconds: float = 0.0
    scores: torch.Tensor | None = None
    steps: list[Step] = field(default_factory=list)
    weights: torch.Tensor | None = None


class Lineage:
    """Which tensors descend from a product of queries and keys; held weakly, so that they go when the model lets go of
    them.
    """

    def __init__(self) -> None:
        self.trails: Any = WeakTensorKeyDictionary()

    def follow(self, name: str, args: tuple, kwargs: dict[str, Any], out, seconds: float) -> Ended | None:
        """Notes one operation; what ended with it if it was the product of weights and values, the last of an
        attention.
        """
        if not isinstance(out, torch.Tensor):
            return None
        factors = _factors(name, args, kwargs)
        if factors is not None:
            source, left, right, order = factors
            trail = self.trails.get(source)
            if trail is not None and trail.scores is not None:
                trail.seconds += seconds
                trail.outside += tensors_in(args)[1:]
                trail.weights = left
                return Ended(trail, right, out if order is None else out.permute(order))
            if not isinstance(right, torch.nn.Parameter) and left.ndim > 1 and right.ndim > 1:
                self.trails[out] = Trail(left, right.transpose(-2, -1), tensors_in((*args, *kwargs.values())), seconds)
                added = args[: PRODUCTS.get(name, 0)]
                self.trails[out].steps.append(Step(name, added, _numbers(kwargs), tuple(out.shape)))
            return None
        given = tensors_in((*args, *kwargs.values()))
        source = next((part for part in given if part in self.trails and _alike(part, out)), None)
        if source is None:
            return None
        trail = self.trails[source]
        trail.seconds += seconds
        trail.outside += [part for part in given if part not in self.trails]
        trail.steps.append(Step(name, _without(source, args), _without(source, kwargs), tuple(out.shape)))
        if name in ("softmax", "_softmax"):
            trail.scores = source
        self.trails[out] = trail
        return None

    def forget(self, trail: Trail) -> None:
        """Lets go of an attention that has ended, with everything that it was made of."""
        for tensor in [tensor for tensor, found in self.trails.items() if found is trail]:
            del self.trails[tensor]


def _without(source: torch.Tensor, given: Any) -> Any:
    """Arguments with None in place of the scores: who held them would keep them from being let go."""
    if given is source:
        return None
    if isinstance(given, dict):
        return {name: _without(source, part) for name, part in given.items()}
    return type(given)(_without(source, part) for part in given) if type(given) in (tuple, list) else given


def _numbers(given: dict[str, Any]) -> dict[str, Any]:
    """The arguments that are no tensors, such as the factors of a product."""
    return {name: part for name, part in given.items() if not isinstance(part, torch.Tensor)}


def tensors_in(values) -> list[torch.Tensor]:
    """The tensors among arguments, those in tuples and lists too."""
    found = []
    for value in values:
        if isinstance(value, torch.Tensor):
            found.append(value)
        elif isinstance(value, tuple | list):
            found += tensors_in(value)
        elif isinstance(value, dict):
            found += tensors_in(value.values())
    return found


class Factors(NamedTuple):
    """The left tensor of a product as it was given, both as (…, rows, inner) and (…, inner, columns), and which axes of
    what came out make (…, rows, columns); None as they are."""

    source: torch.Tensor
    left: torch.Tensor
    right: torch.Tensor
    order: list[int] | None


def _factors(name: str, args: tuple, kwargs: dict[str, Any]) -> Factors | None:
    """The factors of a matrix product; None if this is none."""
    if name == "einsum":
        return _summed(args)
    if name not in PRODUCTS:
        return None
    found = tensors_in((*args[PRODUCTS[name] :], *(kwargs.get(word) for word in ("other", "mat2", "batch1", "batch2"))))
    return Factors(found[0], found[0], found[1], None) if len(found) > 1 else None


def _summed(args: tuple) -> Factors | None:
    """The factors of an einsum that is a batch of matrix products: "bqhd,bkhd->bhqk" and its like."""
    given = tensors_in(args[1:])
    if len(given) != 2 or not isinstance(args[0], str) or "." in args[0] or "->" not in args[0]:
        return None
    ins, _, out = args[0].replace(" ", "").partition("->")
    left, right = ins.split(",")
    inner = [letter for letter in left if letter in right and letter not in out]
    rows = [letter for letter in left if letter not in right]
    columns = [letter for letter in right if letter not in left]
    if not len(inner) == len(rows) == len(columns) == 1:
        return None
    batch = [letter for letter in out if letter in left and letter in right]
    a, b = [*batch, rows[0], inner[0]], [*batch, inner[0], columns[0]]
    if sorted(a) != sorted(left) or sorted(b) != sorted(right):
        return None
    return Factors(
        given[0],
        given[0].permute([left.index(letter) for letter in a]),
        given[1].permute([right.index(letter) for letter in b]),
        [out.index(letter) for letter in (*batch, rows[0], columns[0])],
    )


def _alike(part: torch.Tensor, out: torch.Tensor) -> bool:
    """Whether an operation kept the rows: number by number, with other leading axes, or with more or fewer keys
    (sinks).
    """
    return part.ndim > 1 and out.ndim > 1 and (part.shape[-2:] == out.shape[-2:] or part.shape[:-1] == out.shape[:-1])
