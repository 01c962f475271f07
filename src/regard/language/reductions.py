"""Functions of NumPy and torch that make one number of a vector: sums, extremes, norms, products of two rows."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from ..common.errors import refuse
from .functions import as_kind, maximum, minimum, sqrt
from .tree.syntax import METHODS, SPELLINGS
from .tree.vectors import elements_of, elementwise, vector


def _axes(x, axis, name: str) -> list[int]:
    """The axes of a vector, counted from 0."""
    count = elements_of(x).ndim
    if not count:
        raise refuse(
            "expression",
            f"{name} needs several numbers",
            f"{name} of `{x}`, which is one number for each pair of positions",
            "a vector, such as a row of a table",
            "what is summed over keys is the result of the call; tables can be summed before",
        )
    given = range(count) if axis is None else axis if isinstance(axis, tuple | list) else (axis,)
    if any(type(each) is not int or not -count <= each < count for each in given):
        raise refuse(
            "expression",
            f"{name} has no such axis",
            f"axis {axis!r} of a vector with {count} axes",
            "an axis of the vector; batch, heads, rows and keys are none of its axes",
            "count from the end: -1 is the last axis",
        )
    return sorted({each % count for each in given})


def _reduction(name: str, combine: Callable[[Any, Any], Any], kinds: dict[str, str]):
    """The function with this name: x.sum(-1), torch.sum(x, dim=-1), np.sum(x, axis=-1). kinds: what elements of a kind
    are converted to before.
    """

    def reduce(x, dim=None, keepdim=False, *, axis=None, keepdims=False) -> Any:
        elements, axes = elements_of(x), _axes(x, dim if axis is None else axis, name)

        def convert(part):
            return as_kind(part, kinds.get(part.kind, part.kind)) if hasattr(part, "kind") else part

        for each in reversed(axes):
            parts = [elementwise(convert, part) for part in np.moveaxis(elements, each, 0)]
            elements = elements_of(functools.reduce(functools.partial(elementwise, combine), parts))
        return vector(np.expand_dims(elements, tuple(axes)) if keepdim or keepdims else elements)

    return reduce


_NUMBERS = {"bool": "int"}
_CONDITIONS = {"int": "bool", "float": "bool"}
_sum = _reduction("sum", operator.add, _NUMBERS)
_amax, _amin = _reduction("amax", maximum, _NUMBERS), _reduction("amin", minimum, _NUMBERS)


def _mean(x, dim=None, keepdim=False, *, axis=None, keepdims=False) -> Any:
    axes = _axes(x, dim if axis is None else axis, "mean")
    return _sum(x, axes, keepdim or keepdims) / math.prod(elements_of(x).shape[each] for each in axes)


def _extreme(name: str, of_two: Callable, of_elements: Callable):
    """max and min: of two arguments, or of all elements. Along an axis torch returns places too, and NumPy does not."""

    def extreme(x, *args, **named) -> Any:
        if args and not isinstance(args[0], int):
            return of_two(x, *args, **named)
        if args or named:
            raise refuse(
                "expression",
                f"{name} along an axis is not the same in NumPy and torch",
                f"{name} with {', '.join(map(repr, args)) or ', '.join(named)}",
                "one number, or the function that both have",
                f"write a{name}: x.a{name}(-1)",
            )
        return of_elements(x)

    return extreme


def _norm(x, p=None, dim=None, keepdim=False, *, ord=None, axis=None, keepdims=False, out=None, dtype=None) -> Any:
    power = p if ord is None else ord
    along = {"axis": dim if axis is None else axis, "keepdims": keepdim or keepdims}
    if power in (None, 2, "fro"):
        return sqrt(_sum(x * x, **along))
    if power in (1, math.inf):
        return (_sum if power == 1 else _amax)(abs(x), **along)
    raise refuse("expression", "no such norm", f"order {power!r}", "1, 2 or inf", "write out what it computes")


def _product(x, y) -> Any:
    """The product of two rows, or of matrices, as `@` has it."""
    rows, columns = elements_of(x), elements_of(y)
    if rows.ndim == columns.ndim == 1 and rows.shape == columns.shape:
        return _sum(vector(rows) * vector(columns))
    if not rows.ndim or not columns.ndim or rows.shape[-1] != columns.shape[max(columns.ndim - 2, 0)]:
        raise refuse(
            "expression",
            "vectors do not fit",
            f"a product of shapes {list(rows.shape)} and {list(columns.shape)}",
            "(n,) with (n,), or matrices as for @",
            "multiply numbers with *",
        )
    found = np.matmul(rows, columns)
    return vector(found if isinstance(found, np.ndarray) else elements_of(found))


def _unbind(x, dim=0) -> tuple:
    return tuple(
        elementwise(lambda part: part, part) for part in np.moveaxis(elements_of(x), _axes(x, dim, "unbind")[0], 0)
    )


_REDUCTIONS: dict[str, Callable] = {
    "sum": _sum,
    "mean": _mean,
    "prod": _reduction("prod", operator.mul, _NUMBERS),
    "amax": _amax,
    "amin": _amin,
    "max": _extreme("max", maximum, _amax),
    "min": _extreme("min", minimum, _amin),
    "any": _reduction("any", operator.or_, _CONDITIONS),
    "all": _reduction("all", operator.and_, _CONDITIONS),
    "norm": _norm,
    "dot": _product,
    "matmul": _product,
    "unbind": _unbind,
}
METHODS.update(_REDUCTIONS)
SPELLINGS.update(
    _REDUCTIONS
    | {
        "inner": _product,
        "vdot": _product,
        "vecdot": lambda x, y, dim=-1: _sum(x * y, dim),
        "linalg_norm": _norm,
        "linalg_vector_norm": _norm,
        "vector_norm": _norm,
        "linalg_vecdot": lambda x, y, dim=-1: _sum(x * y, dim),
        "__matmul__": _product,
        "__rmatmul__": lambda x, y: _product(y, x),
    }
)
