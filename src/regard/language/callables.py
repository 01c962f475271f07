"""Callables in the form other libraries use, `mask(b, h, q, kv)` and `score(s, b, h, q, kv)`, traced into expressions.

The callable runs once, on symbols. Arrays that it captures (closures, defaults, globals, partial arguments, attributes
of the object that a method belongs to) are handed to it as tables, so that `ids[q] == ids[kv]` reads inside the kernel.
The callable itself is not changed.
"""

from __future__ import annotations

import functools
import inspect
import types
from typing import Any

import numpy as np

from ..common.errors import Refused, did_you_mean, refuse
from . import expr, masks, scores
from .expr import Expr, Table, table

__all__ = ["as_mask", "as_score"]


def as_mask(rule) -> Expr | None:
    """The mask as an expression: an expression as it is, a boolean array as a read, a callable traced."""
    if rule is None or isinstance(rule, Expr):
        found = rule
    elif isinstance(rule, str | bool | np.bool_):
        found = _word(rule, "mask")
    elif callable(rule):
        found = _called(rule, "mask", (expr.batch, expr.head, expr.query, expr.key))
    else:
        found = masks.dense(rule)
    if found is not None and found.kind != "bool":
        raise refuse(
            "mask",
            "a mask must be a condition",
            given=f"`{found!r}`, which is {found.kind}",
            expected="true where a query may attend",
            fix="compare it with something, or pass it as score=",
        )
    if found is not None and found.scored:
        raise refuse(
            "mask",
            "a mask cannot depend on the score",
            given=f"`{found!r}`",
            expected="a rule over positions",
            fix="use score=where(condition, score, float('-inf'))",
        )
    return found


def as_score(rule) -> Expr | None:
    """The score as an expression: an expression as it is, a float array added to the score, a callable traced."""
    if rule is None or isinstance(rule, Expr):
        found = rule
    elif isinstance(rule, str | bool | np.bool_):
        found = _word(rule, "score")
    elif callable(rule):
        found = _called(rule, "score", (expr.score, expr.batch, expr.head, expr.query, expr.key))
    else:
        found = scores.bias(rule)
    if found is not None and found.kind == "bool":
        raise refuse(
            "score",
            "a score must be a number",
            given=f"`{found!r}`, which is a condition",
            expected="a rule that computes the new logit",
            fix="pass it as mask=",
        )
    return found


def _word(rule, what: str) -> Expr:
    """True and False as rules; a name is not a rule."""
    if not isinstance(rule, str):
        return expr.lift(bool(rule))
    known = (masks if what == "mask" else scores).__all__
    raise refuse(
        what,
        f"a {what} is a rule, not a name",
        given=repr(rule),
        expected="an expression, a callable, or an array",
        fix=f"write {what}=regard.{rule}(…)" if rule in known else did_you_mean(rule, known),
    )


def _called(rule, what: str, symbols) -> Expr:
    try:
        return expr.lift(_with_tables(rule, {})(*symbols))
    except Refused:
        raise
    except Exception as error:  # somebody else's code is run, and may fail in any way
        names = ", ".join(repr(symbol) for symbol in symbols)
        raise refuse(
            what,
            "the callable cannot be traced",
            given=f"{type(error).__name__} while it ran on symbols: {error}",
            expected=f"a function of ({names})",
            fix="index captured arrays with table(array)[…]; use & | ~ and where, not and, or, not, if",
        ) from error


def _with_tables(rule, seen: dict[int, Any]):
    """The callable over the same code, with every captured array readable by expressions."""
    if id(rule) in seen:
        return seen[id(rule)]
    if isinstance(rule, functools.partial):
        parts = (_readable(part, seen) for part in rule.args)
        named = {name: _readable(part, seen) for name, part in rule.keywords.items()}
        return functools.partial(_with_tables(rule.func, seen), *parts, **named)
    if isinstance(rule, types.MethodType):
        return types.MethodType(_with_tables(rule.__func__, seen), Owner(rule.__self__, seen))
    if isinstance(rule, types.FunctionType):
        return _rebound(rule, seen)
    own = inspect.getattr_static(type(rule), "__call__", None)
    return _with_tables(types.MethodType(own, rule), seen) if isinstance(own, types.FunctionType) else rule


def _rebound(rule: types.FunctionType, seen: dict[int, Any]):
    """A copy of the function whose globals, closure and defaults are readable; a library keeps its own globals."""
    cells = tuple(types.CellType() for _ in rule.__closure__ or ())
    scope = rule.__globals__ if _from_library(rule) else dict(rule.__globals__)
    made = types.FunctionType(rule.__code__, scope, rule.__name__, rule.__defaults__, cells)
    seen[id(rule)] = made  # before its parts, so that a recursive rule ends
    if not _from_library(rule):
        for name in _names(rule.__code__) & scope.keys():
            scope[name] = _readable(scope[name], seen)
    for cell, original in zip(cells, rule.__closure__ or (), strict=True):
        cell.cell_contents = _readable(original.cell_contents, seen)
    made.__defaults__ = tuple(_readable(part, seen) for part in rule.__defaults__ or ())
    made.__kwdefaults__ = {name: _readable(part, seen) for name, part in (rule.__kwdefaults__ or {}).items()}
    return made


def _names(code: types.CodeType) -> set[str]:
    """The global names that the code uses, those of functions nested in it included."""
    nested = (_names(constant) for constant in code.co_consts if isinstance(constant, types.CodeType))
    return set(code.co_names).union(*nested)


def _from_library(rule) -> bool:
    """Library functions meet symbols through their own protocols; only what they close over may be the user's."""
    package = getattr(rule, "__module__", None) or ""
    return package.split(".")[0] in ("torch", "numpy", "regard", "builtins")


class Owner:
    """The object that a method belongs to, with its arrays readable by expressions."""

    def __init__(self, owner, seen: dict[int, Any]):
        self._owner, self._seen = owner, seen

    def __getattr__(self, name: str):
        value = getattr(self._owner, name)
        if isinstance(value, types.MethodType) and value.__self__ is self._owner:
            return types.MethodType(_with_tables(value.__func__, self._seen), self)
        return _readable(value, self._seen)


def _readable(value, seen: dict[int, Any]):
    """A captured value as the traced callable should see it."""
    if isinstance(value, Expr | Table | type | types.ModuleType):
        return value
    if isinstance(value, types.FunctionType | types.MethodType | functools.partial):
        return value if _from_library(value) and not getattr(value, "__closure__", None) else _with_tables(value, seen)
    if type(value) in (tuple, list):
        return type(value)(_readable(part, seen) for part in value)
    if type(value) is dict:
        return {name: _readable(part, seen) for name, part in value.items()}
    if hasattr(value, "__array__") and getattr(value, "shape", ()) != ():
        return table(value)
    return value
