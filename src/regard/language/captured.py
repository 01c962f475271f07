"""Arrays that a callable captures: an index below 0 counts from the end there, as in NumPy and torch.

Tables clamp their indices, which engines read fastest. A read of a captured array whose index may be below 0 therefore
becomes `table[where(i < 0, i + n, i)]`, and in a call whose positions show that i is never below 0, `table[i]` again.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..common.caching import Memo
from .analysis import bounds
from .checks.numbers import LIMIT
from .expr import Const, Expr, Op, Read, Table, Var, fold, lift, tables_of, walk
from .functions import where
from .intervals import Extremes, between
from .tree.vectors import Vector, elementwise

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
        size = self.own.length(axis)
        if isinstance(index, Vector):
            return elementwise(lambda part: _from_end(lift(part), size), index)
        return _from_end(lift(index), size)


def _from_end(index: Expr, size: int | Expr) -> Expr:
    if isinstance(index, Const | Var) or index.kind != "int" or not _may_be_negative(index, ANYWHERE):
        return index
    return where(index < 0, index + size, index)


_negative: Memo[bool] = Memo(256)


def _may_be_negative(index: Expr, spans: Spans) -> bool:
    """Whether an index may be below 0 over these positions."""

    def work_out() -> bool:
        ranges = {name: between(low, high) for name, low, high in spans} | {"score": between(-np.inf, np.inf)}
        tables = {id(table): Extremes(table) for table in tables_of(index).values()}
        return not bounds(index, ranges, tables).lo.min() >= 0

    return _negative((index,), spans, work_out)


def simplify(rule: Expr, spans: Spans) -> Expr:
    """The rule in a call over these positions, without the parts for indices that are never below 0 there.

    >>> from regard.language.expr import key, query, table
    >>> bias = Captured(table([1, 2, 3], "bias"))[query - key + 1]
    >>> bias
    bias[where(query - key + 1 < 0, query - key + 1 + 3, query - key + 1)]
    >>> simplify(bias, (("query", 1, 2), ("key", 0, 2)))
    bias[query - key + 1]
    """
    indices = [node.args[2] for node in walk(rule) if isinstance(node, Op) and _counts_from_end(node)]
    certain = {id(index) for index in indices if not _may_be_negative(index, spans)}
    if not certain:
        return rule

    def op(node: Op, *args: Expr) -> Expr:
        return args[2] if _counts_from_end(node) and id(node.args[2]) in certain else Op(node.name, *args)

    return fold(rule, lambda node: node, lambda node: node, lambda node, *index: Read(node.table, *index), op)


def _counts_from_end(node: Op) -> bool:
    """Whether it is where(i < 0, i + n, i)."""
    if node.name != "where":
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
