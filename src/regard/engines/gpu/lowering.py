"""Lowering: an expression becomes a function of tensors, for compiled kernels and for tiles.

The function is a list of steps, one per node, each an operation on earlier values, so torch traces plain operations on
captured tensors. Every value has one dtype, decided here: conditions are bool, integers int32 where bounds show that it
suffices, floats the dtype of the sums. Values that feed a discontinuous decision (a comparison, rounding, an index) are
float64, as in the reference (see `language.analysis.deciding`).
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from ...language.analysis import deciding, in_range, ranges_of
from ...language.expr import Const, Expr, Op, Read, Var, tables_of, walk
from ...language.intervals import Extremes, between
from ...language.problem import Problem
from ...language.tree.interning import known
from .device_call import Tables

POSITIONS = ("batch", "head", "query", "key")
LEAST, MOST = -(2.0**31), 2.0**31


Step = tuple[Callable, tuple[int, ...]]  # an operation, and the indices of the earlier values that are its arguments


def whole_of(problem: Problem) -> torch.dtype:
    """The integer type that cannot overflow: int32 if the bounds of all integers show it, else int64."""
    names = tuple("" if rule is None else rule.digest for rule in (problem.mask, problem.score))
    B, H, Q, K = (problem.dims[name] for name in "BHQK")
    start = problem.query_start
    sizes = B, H, int(start.min(initial=0)), int(start.max(initial=0)) + Q, K
    read = tables_of(*(rule for rule in (problem.mask, problem.score) if rule is not None))
    # A digest covers the values of a table too, unless they may change.
    fits = _fits if all(table.frozen or table.kind != "int" for table in read.values()) else _fits.__wrapped__
    return torch.int32 if fits(names, sizes) else torch.int64


@functools.lru_cache(256)
def _fits(names: tuple[str, ...], sizes: tuple[int, ...]) -> bool:
    """Whether all integers of the rules with these digests fit 32 bits."""
    B, H, low, high, K = sizes
    roots = [known(name) for name in names if name]
    spans = {"batch": (0, B), "head": (0, H), "query": (low, high), "key": (0, K)}
    ranges = {name: between(first, max(last - 1, first)) for name, (first, last) in spans.items()}
    ranges["score"] = between(-np.inf, np.inf)
    found = ranges_of(roots, ranges, {id(table): Extremes(table) for table in tables_of(*roots).values()})
    whole = [found[id(node)] for node in walk(*roots) if node.kind == "int"]
    return all(bool(np.all((part.lo > LEAST) & (part.hi < MOST - 1))) for part in whole)


def mask_of(problem: Problem, tables: Tables, whole: torch.dtype) -> Callable | None:
    """mask(batch, head, query, key) -> conditions; all floats are float64, because a mask is discontinuous."""
    return None if problem.mask is None else lower(problem.mask, POSITIONS, tables, torch.float64, whole, torch.bool)


def score_of(problem: Problem, tables: Tables, real: torch.dtype, whole: torch.dtype) -> Callable | None:
    """score(score, batch, head, query, key) -> the new logit, in `real`."""
    return None if problem.score is None else lower(problem.score, ("score", *POSITIONS), tables, real, whole, real)


def lower(
    rule: Expr, names: tuple[str, ...], tables: Tables, real: torch.dtype, whole: torch.dtype, gives: torch.dtype
) -> Callable:
    """The rule as a function of the named variables, tensors that broadcast; the result has the dtype `gives`.

    >>> from regard.language.masks import window
    >>> rule = lower(window(2), POSITIONS, {}, torch.float64, torch.int32, torch.bool)
    >>> rule(torch.tensor(0), torch.tensor(0), torch.arange(3)[:, None], torch.arange(3)).int().tolist()
    [[1, 0, 0], [1, 1, 0], [0, 1, 1]]
    """
    exact = deciding(rule) if real != torch.float64 else frozenset()
    steps: list[Step] = []
    found: dict[int, tuple[int, torch.dtype]] = {}  # by node: the index of its value, and the dtype

    def add(work: Callable, *args: int) -> int:
        steps.append((work, args))
        return len(names) + len(steps) - 1

    def cast(value: tuple[int, torch.dtype], wanted: torch.dtype) -> int:
        place, dtype = value
        return place if dtype == wanted else add(_to(wanted), place)

    def dtype_of(node: Expr) -> torch.dtype:
        if node.kind == "float":
            return torch.float64 if id(node) in exact else real
        return whole if node.kind == "int" else torch.bool

    anchor = names.index("batch")
    captured: list[torch.Tensor] = []
    for node in walk(rule):
        dtype = dtype_of(node)
        if isinstance(node, Var):
            place = add(_to(dtype), names.index(node.name))
        elif isinstance(node, Const):
            place = add(_constant(node.value, dtype), anchor)
        elif isinstance(node, Read):
            captured.append(_captured(tables[node.table], dtype, captured))
            place = add(_read(captured[-1], dtype), *(cast(found[id(part)], whole) for part in node.index))
        else:
            assert isinstance(node, Op)
            wanted = _meeting(node, [found[id(arg)][1] for arg in node.args], dtype, whole)
            condition = node.name == "where"
            args = [
                found[id(arg)][0] if condition and number == 0 else cast(found[id(arg)], wanted)
                for number, arg in enumerate(node.args)
            ]
            place = add(LOWERED[node.name], *args)
            if node.name == "to_int":
                place = add(_to(dtype), place)
        found[id(node)] = place, dtype
    last = cast(found[id(rule)], gives)
    return _played(tuple(steps), last)


def _played(steps: tuple[Step, ...], last: int) -> Callable:
    def rule(*values):
        computed = list(values)
        for work, args in steps:
            computed.append(work(*[computed[place] for place in args]))
        return computed[last]

    return rule


def _meeting(node: Op, given: list[torch.dtype], dtype: torch.dtype, whole: torch.dtype) -> torch.dtype:
    """The common dtype to which the arguments of an operator are cast."""
    if node.kind != "bool":
        return whole if node.kind == "int" and "float" not in {arg.kind for arg in node.args} else _widest(given, dtype)
    if all(each == torch.bool for each in given):
        return torch.bool
    return _widest(given, whole)


def _widest(given: list[torch.dtype], own: torch.dtype) -> torch.dtype:
    """`own` if it is a float dtype or no float is given, else the widest float dtype given."""
    floats = [each for each in given if each.is_floating_point]
    if own.is_floating_point or not floats:
        return own
    return torch.float64 if torch.float64 in floats else floats[0]


def _to(dtype: torch.dtype) -> Callable:
    return lambda x: x.to(dtype)


def _constant(value: bool | int | float, dtype: torch.dtype) -> Callable:
    if dtype == torch.float32:  # torch refuses to make a float32 of a larger number
        value = in_range(np.asarray(value, np.float64), np.float32).item()
    return lambda x: x.new_full((), value, dtype=dtype)


def _captured(table: torch.Tensor, dtype: torch.dtype, captured: list[torch.Tensor]) -> torch.Tensor:
    """The tensor that a read captures: floats are cast to its dtype. FlexAttention computes the gradient of a tensor
    through one read only, so each read captures a separate tensor.
    """
    held = table.to(dtype) if dtype.is_floating_point else table
    return held.clone() if held.requires_grad and any(held is other for other in captured) else held


def _read(table: torch.Tensor, dtype: torch.dtype) -> Callable:
    """An element at computed indices, clamped into the table."""
    if table.ndim == 0:
        return lambda: table.to(dtype)
    sizes = tuple(table.shape)

    def read(*index):
        place = [torch.clamp(part, 0, size - 1) for part, size in zip(index, sizes, strict=True)]
        return table[tuple(place)].to(dtype)

    return read


def _floordiv(x, y):
    if x.is_floating_point():
        return torch.floor(x / y)
    return torch.where(y == 0, 0, torch.div(x, _divisor(y), rounding_mode="floor"))


def _mod(x, y):
    if x.is_floating_point():
        return torch.remainder(x, y)
    return torch.where(y == 0, 0, torch.remainder(x, _divisor(y)))


def _divisor(y):
    """An integer divided by 0 is 0, as in NumPy; torch must not divide by 0."""
    return torch.where(y == 0, 1, y)


def _lshift(x, bits):
    inside = (bits >= 0) & (bits < 64)
    found = torch.bitwise_left_shift(x.to(torch.int64), torch.where(inside, bits, 0))
    return torch.where(inside, found, 0).to(x.dtype)


def _rshift(x, bits):
    inside = (bits >= 0) & (bits < 64)
    return torch.bitwise_right_shift(x.to(torch.int64), torch.where(inside, bits, 63)).to(x.dtype)


def _sign(x):
    return torch.where(x != x, x, torch.sign(x))  # NaN stays NaN


def _to_int(x):
    """Toward zero, clamped to 32 bits; NaN gives 0. 2³¹ − 1 is not a float32, so it is inserted afterwards."""
    if not x.is_floating_point():
        return x
    inside = torch.where((x > LEAST) & (x < MOST), torch.trunc(x), 0.0).to(torch.int64)
    return torch.where(x >= MOST, 2**31 - 1, torch.where(x <= LEAST, -(2**31), inside))


LOWERED: dict[str, Any] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "div": operator.truediv,
    "floordiv": _floordiv,
    "mod": _mod,
    "neg": operator.neg,
    "abs": torch.abs,
    "minimum": torch.minimum,
    "maximum": torch.maximum,
    "where": torch.where,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
    "eq": operator.eq,
    "ne": operator.ne,
    "and": torch.logical_and,
    "or": torch.logical_or,
    "xor": torch.logical_xor,
    "not": torch.logical_not,
    "bitand": torch.bitwise_and,
    "bitor": torch.bitwise_or,
    "bitxor": torch.bitwise_xor,
    "lshift": _lshift,
    "rshift": _rshift,
    "to_float": lambda x: x,
    "to_int": _to_int,
    "floor": torch.floor,
    "ceil": torch.ceil,
    "round": torch.round,
    "trunc": torch.trunc,
    "sign": _sign,
    "exp": torch.exp,
    "exp2": torch.exp2,
    "expm1": torch.expm1,
    "log": torch.log,
    "log2": torch.log2,
    "log1p": torch.log1p,
    "sqrt": torch.sqrt,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "erf": torch.erf,
    "atan": torch.atan,
    "sin": torch.sin,
    "cos": torch.cos,
    "tan": torch.tan,
    "pow": torch.pow,
}
