"""Numbers in arguments: integers, counts, lists of them, and positions at which rows start."""

from __future__ import annotations

import operator
from typing import NamedTuple

import numpy as np

from ...common.arrays import read_array
from ...common.caching import Memo
from ...common.errors import Reason, Refused, refuse
from ..analysis import substituted
from ..expr import Expr, Op, Table, batch, frozen_table, head, lift, walk

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
    if isinstance(value, Table):
        return integers(value, name, (1,))[batch]
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


def integers(value, where: str, axes: tuple[int, ...]):
    """A list of integers in 64 bits; a table of them is returned unchanged."""
    array = value if isinstance(value, Table) else read_array(value, where)
    whole = array.kind == "int" if isinstance(array, Table) else array.dtype.kind in "iu" or not array.size
    if array.ndim not in axes or not whole:
        raise refuse(
            where,
            "not a list of integers",
            f"{array.dtype} {list(array.shape)}",
            f"integers with {' or '.join(map(str, axes))} axes",
            "convert it with .astype(int)",
        )
    return array if isinstance(array, Table) else array.astype(np.int64)


def frozen(array: np.ndarray | Table, name: str) -> Table:
    """A frozen copy, so that plans that depend on it can be cached; a table is returned unchanged."""
    if isinstance(array, Table):
        return array
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


class Starts(NamedTuple):
    """The numbers of the first batch entry and the first query head; None means 0, in a call that is the whole."""

    batch: int | None = None
    head: int | None = None

    def __str__(self):
        """What differs from 0, in words; empty if nothing does."""
        named = ("batch entry", self.batch), ("head", self.head)
        return ", ".join(f"{name} 0 is {name} {first:,}" for name, first in named if first)


def checked_starts(batch_start, head_start, B: int, H: int, reasons: list[Reason]) -> Starts:
    """The numbers of the first batch entry and of the first head, each None if it is not given."""
    if batch_start is None and head_start is None:
        return Starts()
    first = _first("batch_start", "batch entry", batch_start, B, reasons)
    return Starts(first, _first("head_start", "query head", head_start, H, reasons))


def _first(name: str, what: str, value, count: int, reasons: list[Reason]) -> int | None:
    if value is None:
        return None
    given = small(value)
    if given.ndim == 0 and given.dtype.kind in "iu" and 0 <= int(given) <= LIMIT - count:
        return int(given)
    reasons.append(
        Reason(
            f"{name} is not the number of a {what}",
            shortly(value),
            f"an integer from 0 to {LIMIT - count}: the number of the first {what} of this call in the whole",
            "omit it if the call holds all of them",
        )
    )
    return None


# Engines recognize rules by identity, so the same rule must become the same one again. None: it is not changed. A
# result that was the rule itself would keep it, and its arrays, alive.
_counted: Memo[Expr | None] = Memo(256, of_contents=False)


def counted(rule: Expr, starts: Starts) -> Expr:
    """The rule as it reads in the call, whose batch entries and heads are counted from 0.

    >>> from regard.language.expr import key, query
    >>> counted((head < 4) & (key <= query), Starts(head=8))
    (head + 8 < 4) & (key <= query)
    """
    moved: dict[Expr, Expr] = {
        name: Op("add", name, first) for name, first in zip((batch, head), starts, strict=True) if first
    }
    if not moved:
        return rule

    def rewritten() -> Expr | None:
        return substituted(rule, moved) if any(node in moved for node in walk(rule)) else None

    changed = _counted((rule,), starts, rewritten)
    return rule if changed is None else changed
