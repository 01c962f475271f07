"""Numbers in arguments: integers, counts, and lists of them."""

from __future__ import annotations

import operator

import numpy as np

from ...common.arrays import read_array
from ...common.errors import Refused, refuse
from ..expr import Expr, Table, batch, frozen_table, lift

LIMIT = 1 << 31  # positions are 32-bit in compiled code


def whole(value, where: str, what: str) -> int:
    """An integer of Python or NumPy, or a tensor without axes."""
    try:
        if isinstance(value, bool | np.bool_) or "bool" in str(getattr(value, "dtype", "")):
            raise TypeError("a truth value")
        return operator.index(value)
    except (TypeError, ValueError, RuntimeError) as error:
        raise refuse(where, f"{what} is not an integer", f"{value!r}", "an integer", "round it with int(…)") from error


def count(value, where: str, what: str, least: int = 0):
    """An integer of at least `least`; an expression is returned unchanged."""
    if isinstance(value, Expr):
        return value
    number = whole(value, where, what)
    if number < least:
        raise refuse(
            where,
            f"{what} is {'negative' if number < 0 else 'too small'}",
            f"{number}",
            f"{least} or more",
            "check the number",
        )
    return number


def per_batch(value, name: str):
    """A number for all batch entries, or a table with one per entry."""
    if isinstance(value, Expr | str) or read_array(value, name).ndim == 0:
        return lift(count(value, name, "the number"))
    numbers = integers(value, name, (1,))
    not_negative(numbers, name, "number")
    return frozen(numbers, name)[batch]


def not_negative(numbers: np.ndarray, where: str, what: str) -> None:
    if (numbers < 0).any():
        raise refuse(
            where, f"a {what} is negative", f"{numbers.min()}", f"{what}s of 0 or more", "count from the start"
        )


def integers(value, where: str, axes: tuple[int, ...]) -> np.ndarray:
    array = read_array(value, where)
    if array.ndim not in axes or (array.dtype.kind not in "iu" and array.size):
        raise refuse(
            where,
            "not a list of integers",
            f"{array.dtype} {list(array.shape)}",
            f"integers with {' or '.join(map(str, axes))} axes",
            "convert it with .astype(int)",
        )
    return array.astype(np.int64)


def frozen(array: np.ndarray, name: str) -> Table:
    """A frozen copy, so that plans that depend on it can be cached."""
    return frozen_table(array if array.size else np.zeros((1,) * array.ndim, array.dtype), name)


def small(value) -> np.ndarray:
    """A short argument as an array; what NumPy cannot read becomes an object, which every check rejects."""
    try:
        return read_array(value, "argument")
    except Refused:
        return np.array(None)


def shortly(value) -> str:
    """A value as an error message shows it, at most 80 characters."""
    shown = repr(value)
    return shown if len(shown) <= 80 else shown[:80] + " …"
