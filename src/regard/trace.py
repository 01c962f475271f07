"""Callables in the form other libraries use, `mask(b, h, q, kv)` and `score(s, b, h, q, kv)`, traced into expressions.

The callable runs once, on symbols. Arrays that it captures (closures, defaults, globals, partial arguments) are handed to it as
tables, so that `ids[q] == ids[kv]` reads inside the kernel. The callable itself is not changed.
"""

from __future__ import annotations

import functools
import types
from typing import Any

from . import expr
from .errors import refuse
from .expr import Expr, Table, table

__all__ = ["as_mask", "as_score"]


def as_mask(rule) -> Expr | None:
    """The mask as an expression: an expression as it is, a boolean array as a read, a callable traced."""
    if rule is None or isinstance(rule, Expr):
        found = rule
    elif callable(rule):
        found = _called(rule, "mask", (expr.batch, expr.head, expr.query, expr.key))
    else:
        from .masks import dense

        found = dense(rule)
    if found is not None and found.kind != "bool":
        raise refuse("mask", "a mask must be a condition", given=f"`{found!r}`, which is {found.kind}",
                     expected="true where a query may attend", mend="compare it with something, or pass it as score=")  # fmt: skip
    if found is not None and any(node is expr.score for node in expr.walk(found)):
        raise refuse("mask", "a mask cannot depend on the score", given=f"`{found!r}`", expected="a rule over positions",
                     mend="use score=where(condition, score, float('-inf'))")  # fmt: skip
    return found


def as_score(rule) -> Expr | None:
    """The score as an expression: an expression as it is, a float array added to the score, a callable traced."""
    if rule is None or isinstance(rule, Expr):
        found = rule
    elif callable(rule):
        found = _called(rule, "score", (expr.score, expr.batch, expr.head, expr.query, expr.key))
    else:
        from .scores import bias

        found = bias(rule)
    if found is not None and found.kind == "bool":
        raise refuse("score", "a score must be a number", given=f"`{found!r}`, which is a condition",
                     expected="a rule that gives the new logit", mend="pass it as mask=")  # fmt: skip
    return found


def _called(rule, what: str, symbols) -> Expr:
    try:
        found = _with_tables(rule)(*symbols)
    except (IndexError, TypeError) as error:
        names = ", ".join(repr(symbol) for symbol in symbols)
        raise refuse(what, "the callable cannot be traced", given=f"{error}", expected=f"a function of ({names})",
                     mend="index captured arrays with table(array)[…]; use & | ~ and where instead of and, or, not, if") from error  # fmt: skip
    if not isinstance(found, Expr):
        found = expr.lift(found)
    return found


def _with_tables(rule, seen: dict[int, Any] | None = None):
    """The callable over the same code, with every captured array readable by expressions."""
    seen = {} if seen is None else seen
    if id(rule) in seen:
        return seen[id(rule)]
    if isinstance(rule, functools.partial):
        parts = (_readable(part, seen) for part in rule.args)
        named = {name: _readable(part, seen) for name, part in rule.keywords.items()}
        return functools.partial(_with_tables(rule.func, seen), *parts, **named)
    if isinstance(rule, types.MethodType):
        return types.MethodType(_with_tables(rule.__func__, seen), rule.__self__)
    if not isinstance(rule, types.FunctionType):
        return rule
    used = set(rule.__code__.co_names)
    for constant in rule.__code__.co_consts:  # names that nested functions use
        if isinstance(constant, types.CodeType):
            used |= set(constant.co_names)
    scope = dict(rule.__globals__)
    made = types.FunctionType(rule.__code__, scope, rule.__name__, rule.__defaults__,
                              tuple(types.CellType() for _ in rule.__closure__ or ()))  # fmt: skip
    seen[id(rule)] = made  # before its parts, so that a recursive rule ends
    for name in used & scope.keys():
        scope[name] = _readable(scope[name], seen)
    for cell, original in zip(made.__closure__ or (), rule.__closure__ or (), strict=True):
        cell.cell_contents = _readable(original.cell_contents, seen)
    made.__defaults__ = tuple(_readable(part, seen) for part in rule.__defaults__ or ())
    made.__kwdefaults__ = {name: _readable(part, seen) for name, part in (rule.__kwdefaults__ or {}).items()}
    return made


def _readable(value, seen):
    """A captured value as the traced callable should see it."""
    if isinstance(value, Expr | Table | type | types.ModuleType):
        return value
    if isinstance(value, types.FunctionType | types.MethodType | functools.partial):
        package = getattr(value, "__module__", None) or ""
        # Library functions meet symbols through their own protocols; only the user's rules are rebound.
        return value if package.split(".")[0] in ("torch", "numpy", "regard", "builtins") else _with_tables(value, seen)
    if isinstance(value, tuple | list):
        return type(value)(_readable(part, seen) for part in value) if type(value) in (tuple, list) else value
    if hasattr(value, "__array__") and getattr(value, "shape", ()) != ():
        return table(value)
    return value
