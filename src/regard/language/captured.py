"""Arrays that a callable captures: an index below 0 counts from the end there, as in NumPy and torch.

Tables clamp their indices, which engines read fastest. A read of a captured array whose index may be below 0 therefore
becomes `table[where(i < 0, i + n, i)]`, and in a call whose positions show that i is never below 0, `table[i]` again.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..common.caching import Memo
from .analysis import ranges_of
from .checks.numbers import LIMIT
from .expr import Const, Expr, Op, Read, Table, fold, lift, tables_of, walk
from .functions import where
from .intervals import Interval
from .tree.vectors import elementwise

Spans = tuple[tuple[str, int, int], ...]  # of each variable: its name, its least and its largest value
ANYWHERE: Spans = tuple((name, 0, LIMIT - 1) for name in ("batch", "head", "query", "key"))


class Captured(Table):
    """A table as a callable reads its array. own: the table, which the reads are of."""

    own: Any = None

    def __init__(self, own: Table):
        for name in ("source", "array", "name", "frozen", "sources", "digest", "scored"):
            setattr(self, name, getattr(own, name))
        self.own = own

    def place(self, axis: int, index: Any) -> Any:
        return elementwise(lambda part: _from_end(lift(part), self.own.length(axis)), index)


def _from_end(index: Expr, size: int | Expr) -> Expr:
    if isinstance(index, Const) or index.kind != "int" or not _may_be_negative([index], ANYWHERE):
        return index
    return where(index < 0, index + size, index)


def _may_be_negative(indices: list[Expr], spans: Spans) -> set[int]:
    """The ids of those that may be below 0 over these positions."""
    ranges = {name: _interval(low, high) for name, low, high in spans}
    ranges["score"] = _interval(-np.inf, np.inf)
    found = ranges_of(indices, ranges, {id(table): _Extremes(table) for table in tables_of(*indices).values()})
    return {id(index) for index in indices if not found[id(index)].lo.min() >= 0}


class _Extremes:
    """The bounds of a table wherever it is read."""

    def __init__(self, table: Table):
        known = table.kind != "float" and isinstance(table.array, np.ndarray)
        self.ends = _interval(table.array.min(), table.array.max()) if known else _interval(-np.inf, np.inf)

    def bounds(self, _: list[Interval]) -> Interval:
        return self.ends


def _interval(low: float, high: float) -> Interval:
    return Interval(np.array([low], np.float64), np.array([high], np.float64), not np.isfinite(low))


_placed: Memo[Expr | None] = Memo(256, of_contents=False)  # None: the rule is not changed


def placed(rule: Expr, spans: Spans) -> Expr:
    """The rule in a call over these positions, without the parts for indices that are never below 0 there.

    >>> from regard.language.expr import key, query, table
    >>> bias = Captured(table([1, 2, 3], "bias"))[query - key + 1]
    >>> bias
    bias[where(query - key + 1 < 0, query - key + 1 + 3, query - key + 1)]
    >>> placed(bias, (("query", 1, 2), ("key", 0, 2)))
    bias[query - key + 1]
    """
    if not rule.tables or not any(map(_counts_from_end, walk(rule))):
        return rule
    found = _placed((rule,), spans, lambda: _rewritten(rule, spans))
    return rule if found is None else found


def _rewritten(rule: Expr, spans: Spans) -> Expr | None:
    indices = [node.args[2] for node in walk(rule) if isinstance(node, Op) and _counts_from_end(node)]
    negative = _may_be_negative(indices, spans)
    if all(id(index) in negative for index in indices):
        return None

    def op(node: Op, *args: Expr) -> Expr:
        return args[2] if _counts_from_end(node) and id(node.args[2]) not in negative else Op(node.name, *args)

    return fold(rule, lambda node: node, lambda node: node, lambda node, *index: Read(node.table, *index), op)


def _counts_from_end(node: Expr) -> bool:
    """Whether it is where(i < 0, i + n, i)."""
    if not isinstance(node, Op) or node.name != "where":
        return False
    condition, moved, index = node.args
    return (
        isinstance(condition, Op)
        and condition.name == "lt"
        and condition.args[0] is index
        and condition.args[1] is lift(0)
        and isinstance(moved, Op)
        and moved.name == "add"
        and moved.args[0] is index
        and isinstance(moved.args[1], Const)
    )
