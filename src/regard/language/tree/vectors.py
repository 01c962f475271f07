"""Vectors in rules: several numbers of one pair of positions, such as a row of a table, until they become one."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ...common.arrays import is_tensor
from ...common.errors import refuse
from .syntax import SPELLINGS, Syntax
from .tables import Array

MOST = 256  # elements: every one becomes a part of the expression


class Vector(Syntax):
    """Several numbers of one pair of positions, an array of expressions: `table(points)[query]` is a row of `points`.

    Operators and functions apply to each element and broadcast as NumPy's do; `.sum(-1)`, `.mean`, `.prod`, `.amax`,
    `.amin`, `.any`, `.all`, `.norm` and `@` make one number of several.

    Examples:
        >>> import numpy as np, regard as rg
        >>> points = rg.table(np.eye(2), "points")
        >>> abs(points[rg.query] - points[rg.key]).sum(-1)
        abs(points[query, 0] - points[key, 0]) + abs(points[query, 1] - points[key, 1])
    """

    def __init__(self, elements: np.ndarray):
        _refuse_empty(elements.shape)
        self.elements = elements

    @property
    def kind(self) -> str:  # type: ignore[override]
        kinds = {element.kind for element in self.elements.flat}
        return kinds.pop() if len(kinds) == 1 else "float" if "float" in kinds else "int"

    @property
    def shape(self) -> tuple[int, ...]:
        return self.elements.shape

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def apply(self, name: str, *args) -> Any:
        def of_elements(*parts):
            return next(part for part in parts if isinstance(part, Syntax)).apply(name, *parts)

        return elementwise(of_elements, *args)

    def __getitem__(self, index) -> Any:
        found = self.elements[index]
        return Vector(found) if isinstance(found, np.ndarray) else found

    def __len__(self) -> int:
        return len(self.elements)

    def __iter__(self) -> Iterator:
        return (self[number] for number in range(len(self)))

    def __contains__(self, other):
        raise TypeError(f"`in` needs numbers, and {self} has one per position: write ({self} == x).any()")

    def __array_ufunc__(self, ufunc, method, *args, **kwargs):
        return super().__array_ufunc__(ufunc, method, *map(operand, args), **kwargs)

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        return super().__torch_function__(function, types, tuple(map(operand, args)), kwargs)

    __hash__ = object.__hash__

    def __str__(self):
        return f"[{', '.join(str(part) for part in self)}]"

    __repr__ = __str__


class View(Vector):
    """Some elements of a table, which are expressions once they are used: `table(a)[batch]` needs the other indices.

    parts: of each axis of the table, the index of one element, or a range of them.
    """

    def __init__(self, table: Any, parts: tuple):
        self.table, self.parts = table, parts
        _refuse_empty(self.shape)

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(len(part) for part in self.parts if isinstance(part, range))

    @functools.cached_property
    def elements(self) -> np.ndarray:  # type: ignore[override]
        _refuse_long(self.shape, str(self))
        found = np.empty(self.shape, object)
        for place in np.ndindex(self.shape):
            found[place] = self[place]
        return found

    def __getitem__(self, index) -> Any:
        given, parts = iter(expanded(index, self.shape, str(self))), []
        for part in self.parts:
            parts.append(_element(part, next(given)) if isinstance(part, range) else part)
        return self.table[tuple(parts)]

    def __len__(self) -> int:
        return self.shape[0]

    def __str__(self):
        return f"{self.table!r}[{', '.join(map(_indexed, self.parts))}]"

    def __repr__(self):
        return f"{self}, a vector of shape {list(self.shape)}"


def _refuse_empty(shape: tuple[int, ...]) -> None:
    if 0 in shape:
        raise refuse(
            "expression", "a vector is empty", f"shape {list(shape)}", "one element or more", "check the slice"
        )


def _refuse_long(shape: tuple[int, ...], shown: str) -> None:
    if math.prod(shape) > MOST:
        raise refuse(
            "expression",
            "a vector is too long",
            f"{shown}: {math.prod(shape):,} numbers for each pair",
            f"{MOST} or fewer, each of which becomes a part of the rule",
            "read an array at positions, with an index for each axis, as in table(a)[query, key], or compute what the "
            "rule needs of it before the call and read that: table(a.sum(-1))[query]",
        )


def expanded(index, shape: tuple[int, ...], name: str) -> list:
    """One index per axis: those that are not given, and those of …, are slices."""
    given = list(index) if isinstance(index, tuple) else [index]
    gaps = [place for place, part in enumerate(given) if part is Ellipsis]
    rest = len(shape) - len(given) + len(gaps)
    if rest < 0 or len(gaps) > 1 or any(part is None for part in given):
        shown = ", ".join(map(_indexed, given))
        raise refuse(
            "table",
            "wrong number of indices",
            f"{name}[{shown}]",
            f"{len(shape)} indices",
            "give one index per axis, or fewer for a vector of the others, with ... for the axes between",
        )
    place = gaps[0] if gaps else len(given)
    return [*given[:place], *[slice(None)] * rest, *given[place + len(gaps) :]]


def ranges(index, shape: tuple[int, ...], name: str) -> tuple:
    """Of each axis the index of one element, or the range of a slice."""
    return tuple(
        range(*part.indices(size)) if isinstance(part, slice) else part
        for part, size in zip(expanded(index, shape, name), shape, strict=True)
    )


def _element(axis: range, index) -> Any:
    """An index, or a slice, of some elements of an axis as one of the axis."""
    if isinstance(index, slice):
        return axis[index]
    if axis == range(len(axis)):
        return index
    if isinstance(index, int):
        return axis[min(max(index + len(axis) * (index < 0), 0), len(axis) - 1)]
    place = SPELLINGS["clip"](index, 0, len(axis) - 1)
    return (place if axis.step == 1 else axis.step * place) + axis.start


def _indexed(part) -> str:
    """An index as code."""
    if part is Ellipsis:
        return "..."
    if isinstance(part, range | slice):
        ends = ("" if end is None else str(end) for end in (part.start, part.stop))
        return ":".join(ends) + (f":{part.step}" if part.step not in (None, 1) else "")
    return str(part)


def operand(value) -> Any:
    """An array as a vector of its numbers; anything else unchanged."""
    array = isinstance(value, Array) or (not isinstance(value, Syntax) and getattr(value, "shape", ()) != ())
    return Vector(elements_of(value)) if array else value


def elementwise(function: Callable, *args) -> Any:
    """A function of numbers applied to vectors, which broadcast."""
    arrays = list(map(elements_of, args))
    try:
        shape = np.broadcast_shapes(*(array.shape for array in arrays))
    except ValueError as error:
        shapes = ", ".join(str(list(array.shape)) for array in arrays)
        raise refuse(
            "expression", "vectors do not broadcast", shapes, "equal lengths, or 1", "select elements: v[:3], v[..., 0]"
        ) from error
    _refuse_long(shape, f"shape {list(shape)}")
    found = np.empty(shape, object)
    for place, parts in zip(np.ndindex(shape), zip(*(np.broadcast_to(array, shape).flat for array in arrays))):
        found[place] = function(*parts)
    return vector(found)


def elements_of(value) -> np.ndarray:
    """The elements of a vector, of a table or a tensor as a whole, or of arrays in a list; of a number, itself."""
    if is_tensor(value) and value.ndim:
        value = SPELLINGS["__getitem__"](value, ...)  # a table, so that gradients reach it
    if isinstance(value, Array):
        value = value[...]  # type: ignore[index] # of the subclass that can be read
    if isinstance(value, Vector):
        return value.elements
    if isinstance(value, list | tuple) or (not isinstance(value, Syntax) and getattr(value, "shape", ()) != ()):
        _refuse_long(np.shape(value), f"{type(value).__name__} of shape {list(np.shape(value))}")
        return np.stack([elements_of(part) for part in value])
    found = np.empty((), object)
    found[()] = value
    return found


def unsqueezed(value, dim: int) -> Any:
    """The value with one more axis, as torch's unsqueeze has it."""
    return vector(np.expand_dims(elements_of(value), dim))


def vector(elements: np.ndarray) -> Any:
    """An array of expressions as a vector; one without axes is its element."""
    return Vector(elements) if elements.ndim else elements[()]
