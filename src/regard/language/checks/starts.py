"""Where the batch entries and heads of a call begin in a larger call, of which it computes a part.

The rules of such a call are rewritten once, head → head + head_start and batch → batch + batch_start. Everything after
that, from the plan to compiled code, then counts from 0 in the call and needs to know nothing of it.
"""

from __future__ import annotations

from typing import NamedTuple

from ...common.caching import Memo
from ...common.errors import Reason
from ..analysis import substituted
from ..expr import Expr, Op, batch, head, walk
from .numbers import LIMIT, shortly, small


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
    if not any(starts):
        return rule
    found = _counted((rule,), starts, lambda: _rewritten(rule, starts))
    return rule if found is None else found


def _rewritten(rule: Expr, starts: Starts) -> Expr | None:
    moved: dict[Expr, Expr] = {
        name: Op("add", name, first) for name, first in zip((batch, head), starts, strict=True) if first
    }
    return substituted(rule, moved) if any(node in moved for node in walk(rule)) else None
