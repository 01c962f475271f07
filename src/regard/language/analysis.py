"""Analyses of an expression: its value, its bounds over a tile, its derivative, and substitution of variables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from . import functions as f
from . import intervals
from .expr import Const, Expr, Op, Read, Table, fold, fold_all, score, walk
from .operators import OPERATORS

ONE = Const(1.0)
WRAPPING = ("add", "sub", "mul", "neg", "abs", "floordiv")  # integer operators that can leave 64 bits
STEPS = ("floor", "ceil", "round", "trunc", "sign", "floordiv", "mod", "to_int", "lt", "le", "gt", "ge", "eq", "ne")
TERMS = 32  # the most terms of a sum in affine form, so that the work is linear in the size of the expression

Form = tuple[dict[Expr, int], int]
Guarded = tuple[Expr | None, Expr]  # a condition (None: always true) and the value if it is true; else the value is 0


def clamped(table: Table, index) -> tuple[np.ndarray, ...]:
    # For small arrays np.clip takes much longer than both.
    return tuple(np.minimum(np.maximum(part, 0), size - 1) for part, size in zip(index, table.array.shape))


def evaluate(root: Expr, values: Mapping[str, Any], real: Any = np.float64) -> np.ndarray:
    """The value of the expression; `values` maps each variable to an array, and all must broadcast together.

    real: the dtype in which engines compute it. The result has the precision of float64 and the range of `real`: a
    constant, an element or a result that is too large for it is infinite, and one that is too small is 0. Parts that
    are `deciding` have the range of float64.
    """
    narrow = np.dtype(real) != np.float64
    exact = deciding(root) if narrow else frozenset()

    def held(node, found):
        return in_range(found, real) if narrow and node.kind == "float" and id(node) not in exact else found

    def const(node):
        return held(node, np.asarray(node.value))

    def var(node):
        return held(node, np.asarray(values[node.name]))

    def read(node, *index):
        found = node.table.array[clamped(node.table, index)]
        return held(node, found.astype({"bool": np.bool_, "int": np.int64, "float": np.float64}[node.kind]))

    def op(node, *given):
        row = OPERATORS[node.name]
        args = [
            arg.astype(np.int64) if arg.dtype == np.bool_ and code == "n" else arg
            for code, arg in zip(row.takes, given, strict=True)
        ]
        if exact and node.kind == "float" and id(node) not in exact:  # a deciding part is converted where it is used
            args = [in_range(arg, real) if arg.dtype.kind == "f" else arg for arg in args]
        found = np.asarray(row.value(*args))
        return held(node, found.astype(np.float64) if node.kind == "float" and found.dtype.kind == "i" else found)

    with np.errstate(all="ignore"):
        found = fold(root, const, var, read, op)
        return in_range(found, real) if narrow and found.dtype.kind == "f" else found


def in_range(values: np.ndarray, real: Any) -> np.ndarray:
    """Numbers in float64, infinite or 0 where `real` holds no other number that near.

    >>> in_range(np.array([0.1, 1e39, -1e300, 1e-50]), np.float32)
    array([ 0.1,  inf, -inf,  0. ])
    """
    with np.errstate(over="ignore", under="ignore"):
        rounded = np.asarray(values).astype(real)
    return np.where((rounded == 0) | np.isinf(rounded), rounded.astype(np.float64), values)


def substituted(root: Expr, values: Mapping[Expr, Expr]) -> Expr:
    """The expression with others in place of its variables.

    >>> from regard.language.expr import key, query
    >>> substituted(key <= query, {key: key + 4})
    key + 4 <= query
    """
    return fold(
        root,
        lambda node: node,
        lambda node: values.get(node, node),
        lambda node, *index: Read(node.table, *index),
        lambda node, *args: Op(node.name, *args),
    )


def bounds(root: Expr, ranges: Mapping[str, intervals.Interval], tables: dict | None = None) -> intervals.Interval:
    """The interval of the expression over tiles; `ranges` maps each variable to its interval per tile.

    `tables` caches the summaries of arrays between calls.
    """
    return ranges_of((root,), ranges, tables)[id(root)]


def ranges_of(
    roots: Iterable[Expr], ranges: Mapping[str, intervals.Interval], tables: dict | None = None
) -> dict[int, intervals.Interval]:
    """The interval of every node below the roots, by id(node), in one pass; see `bounds`."""
    summaries = {} if tables is None else tables
    meaning: dict[int, intervals.Interval] = {}
    forms: dict[int, Form] = {}

    def read(node, *index):
        if id(node.table) not in summaries:
            summaries[id(node.table)] = intervals.RangeTable(node.table.array)
        return summaries[id(node.table)].bounds(list(index))

    def op(node, *args):
        if node.name in intervals.COMPARISONS and all(arg.kind == "int" for arg in node.args):
            x, y = (affine(arg, forms) for arg in node.args)
            return intervals.sign(_difference(x, y, meaning), intervals.COMPARISONS[node.name])
        found = OPERATORS[node.name].bounds(*args)
        if node.kind == "int" and node.name in WRAPPING:
            if intervals.reach(found) < intervals.EXACT:
                forms[id(node)] = _sum(node, forms)
            else:
                found = intervals.wrapped(found)
        return found

    with np.errstate(all="ignore"):
        return fold_all(
            roots, lambda node: intervals.point(node.value), lambda node: ranges[node.name], read, op, meaning
        )


def affine(node: Expr, forms: Mapping[int, Form]) -> Form:
    """An integer expression as Σ coefficient · term + constant; `forms` holds those of the sums below it, by id."""
    if isinstance(node, Const):
        return {}, int(node.value)
    return forms.get(id(node), ({node: 1}, 0))


def _sum(node: Op, forms: Mapping[int, Form]) -> Form:
    """The affine form of a node within 64 bits; a node that is not a sum, or too long a sum, is a single term."""
    terms, constant = affine(node.args[0], forms)
    if node.name in ("neg", "add", "sub"):
        more, shift = ({}, 0) if node.name == "neg" else affine(node.args[1], forms)
        first, second = {"neg": (-1, 0), "add": (1, 1), "sub": (1, -1)}[node.name]
    elif node.name == "mul" and any(isinstance(arg, Const) for arg in node.args):
        number, other = node.args if isinstance(node.args[0], Const) else node.args[::-1]
        assert isinstance(number, Const)
        (terms, constant), (more, shift) = affine(other, forms), ({}, 0)
        first, second = int(number.value), 0
    else:
        return {node: 1}, 0
    found = _combined(terms, first, more, second)
    constant = first * constant + second * shift
    plain = len(found) <= TERMS and all(abs(number) < intervals.EXACT for number in (constant, *found.values()))
    return (found, constant) if plain else ({node: 1}, 0)


def _combined(x: dict[Expr, int], a: int, y: dict[Expr, int], b: int) -> dict[Expr, int]:
    """a · x + b · y, term by term."""
    found = {term: a * factor for term, factor in x.items()}
    for term, factor in y.items():
        found[term] = found.get(term, 0) + b * factor
    return {term: factor for term, factor in found.items() if factor}


def _difference(x: Form, y: Form, meaning: Mapping[int, intervals.Interval]) -> intervals.Interval:
    """Bounds of x - y, in which a term of both sides cancels: exact for differences of positions."""
    constant = x[1] - y[1]
    parts = [(factor, meaning[id(term)]) for term, factor in _combined(x[0], 1, y[0], -1).items()]
    if abs(constant) + sum(abs(factor) * intervals.reach(part) for factor, part in parts) < intervals.EXACT:
        # No partial sum can have been rounded, so a single check of the sizes is enough.
        lo = hi = np.asarray(constant, np.float64)
        nan: np.ndarray | bool = False
        for factor, part in parts:
            lo = lo + factor * (part.lo if factor > 0 else part.hi)
            hi = hi + factor * (part.hi if factor > 0 else part.lo)
            nan = nan | part.nan
        return intervals.Interval(lo, hi, nan)
    total = intervals.point(constant)
    for factor, part in parts:
        total = intervals.add(total, intervals.mul(intervals.point(factor), part))
    return total


def adjoints(root: Expr) -> dict[Expr, Expr]:
    """∂root/∂leaf for the score and every table read, as expressions (reverse mode over the tree).

    A leaf that occurs several times gets the sum over its occurrences. Conditions, indices and step functions have
    derivative 0. The branch that a condition did not select contributes nothing, not even NaN: 0 is selected, not
    multiplied.
    """
    reached: dict[Expr, Guarded] = {root: (None, ONE)}
    for node in reversed(list(walk(root))):
        if not isinstance(node, Op) or node not in reached or node.kind != "float":
            continue
        derivative = OPERATORS[node.name].derivative
        if derivative is None:
            continue
        guard, value = reached[node]
        for arg, partial in zip(node.args, derivative(f, node, *node.args), strict=True):
            if arg.kind != "float" or (isinstance(partial, int) and partial == 0):
                continue
            condition, slope = _chosen(f.as_kind(f.lift(partial), "float"))
            both = condition if guard is None else guard if condition is None else guard & condition
            share = both, _times(value, slope)
            reached[arg] = _together(reached[arg], share) if arg in reached else share
    return {node: _where(share) for node, share in reached.items() if isinstance(node, Read) or node is score}


def _chosen(partial: Expr) -> Guarded:
    """where(c, x, 0) as the condition c and x; any other expression is unconditional."""
    if isinstance(partial, Op) and partial.name == "where":
        condition, x, y = partial.args
        if isinstance(y, Const) and y.value == 0:
            return condition, x
        if isinstance(x, Const) and x.value == 0:
            return ~condition, y
    return None, partial


def _where(share: Guarded) -> Expr:
    guard, value = share
    return value if guard is None else f.where(guard, value, 0.0)


def _together(x: Guarded, y: Guarded) -> Guarded:
    """The sum of two contributions to one node."""
    if x[0] is y[0]:
        return x[0], x[1] + y[1]
    guard = None if x[0] is None or y[0] is None else x[0] | y[0]
    return guard, _where(x) + _where(y)


def _times(x: Expr, y: Expr) -> Expr:
    """x · y without a factor of 1."""
    return y if x is ONE else x if y is ONE else x * y


def deciding(root: Expr | None) -> frozenset[int]:
    """The float parts of a score that feed a discontinuous decision (a comparison, a step function or an index) and
    depend on positions and tables only. They are computed in float64, as in the reference; everything that depends on
    the score is float32 anyway.
    """
    if root is None:
        return frozenset()
    nodes, follows, found = list(walk(root)), set[int](), set[int]()
    for node in nodes:
        if node is score or any(id(child) in follows for child in node.children):
            follows.add(id(node))
    for node in reversed(nodes):  # parents before children, because the property is inherited
        decides = id(node) in found or (isinstance(node, Op) and node.name in STEPS)
        if decides or node.kind != "float":
            found |= {id(child) for child in node.children if child.kind == "float" and id(child) not in follows}
        if decides and node.kind == "float" and id(node) not in follows:
            found.add(id(node))
    return frozenset(found)
