"""Arrays that rules read: the numbers, their name, and their kind."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...common.arrays import is_float, is_tensor, outline
from ...common.errors import refuse
from .interning import name_of_array


class Array:
    """An array with a name. source: the caller's array or tensor; array: its numbers, in the same memory.

    frozen: the numbers are a copy that regard owns, so plans that depend on them remain valid. A read-only array of the
    caller is not frozen: an older view may write to it, and its owner may make it writeable again.
    """

    def __init__(self, source, array: np.ndarray, name: str, frozen: bool = False):
        self.source, self.array, self.name, self.frozen = source, array, name, frozen
        self.sources = (source,) if is_tensor(source) else ()
        self.digest, self.scored = f"{name} {name_of_array(array, frozen)}", False

    tables = property(lambda self: (self,))
    memory = property(lambda self: self.array)  # the array from which it can be made again

    @property
    def kind(self) -> str:
        return {"b": "bool", "i": "int", "u": "int"}.get(self.array.dtype.kind, "float")

    def __getattr__(self, name: str) -> Any:
        """Every other attribute is that of the captured array, such as its dtype or its `max`."""
        if name.startswith("_") or name in ("source", "array", "name", "frozen", "sources", "digest", "scored"):
            raise AttributeError(name)
        return getattr(self.source, name)

    def written(self, operand: str) -> str:
        """The text that makes it again from its memory."""
        return f"table({operand}, {self.name!r})"

    def __len__(self):
        return len(self.array)

    def __iter__(self):
        # Without it, Python would read the elements 0, 1, 2 … until one is missing, and indices are clamped: none is.
        raise TypeError(
            f"{self} is read at positions, as in {self.name}[key], and cannot be iterated: iterate its array"
        )

    __contains__ = __iter__

    def __array__(self, dtype=None, copy=None):
        """The numbers, in the same memory if possible, as NumPy's protocol has it."""
        return np.array(self.array, dtype, copy=True) if copy else np.asarray(self.array, dtype)

    @property
    def shape(self):
        return self.array.shape

    def __repr__(self):
        return f"<table {self.name}: {self.array.dtype} {list(self.array.shape)}>"


def readable(array) -> np.ndarray:
    """The array with one of the dtypes that kernels read."""
    numbers = outline(array, "table")
    plain = (
        (numbers.dtype.kind in "biu" or is_float(numbers.dtype))
        and numbers.dtype.itemsize <= 8
        and numbers.dtype.isnative
    )
    if not plain or numbers.dtype == np.uint64 or numbers.size == 0:
        raise refuse(
            "table",
            "the array cannot be read",
            f"{numbers.dtype} {list(numbers.shape)}",
            "booleans, integers up to int64, or floats up to float64, and at least one element",
            "convert it with .astype(…), or leave out a table that has no element",
        )
    return numbers


def number_of(value) -> bool | int | float | None:
    """The number of a scalar of NumPy or torch; None if it is not a real one, such as a date or a complex number."""
    number = value.item()
    if isinstance(number, np.longdouble):  # which NumPy does not convert, as Python has no such number
        return float(number)
    is_date = getattr(getattr(value, "dtype", None), "kind", "f") in "Mm"
    return number if isinstance(number, bool | int | float) and not is_date else None
