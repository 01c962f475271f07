"""Traces callables in the form of other libraries, `mask(b, h, q, kv)` and `score(s, b, h, q, kv)`, into expressions.

The callable runs once, on symbols. Arrays that it captures (closures, defaults, globals, partial arguments, attributes
of the object of a method) are replaced by tables, so that `ids[q] == ids[kv]` is read inside the kernel. The callable
itself is not changed.
"""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable
from typing import Any

import numpy as np

from ..common.arrays import elsewhere
from ..common.call_hooks import compiling
from ..common.errors import Refused, did_you_mean, refuse
from ..common.public import ArrayLike
from . import expr, masks, scores
from .captured import Captured
from .expr import Expr, Table, table
from .rule_text import read
from .tree.syntax import LISTED, METHODS, Syntax
from .tree.traced import Traced
from .tree.vectors import Vector

Mask = Expr | Callable[..., Any] | bool | ArrayLike  # an expression, mask(b, h, q, kv), or booleans
Score = Expr | Callable[..., Any] | float | ArrayLike  # an expression, score(s, b, h, q, kv), or floats that are added

COPIED = 1 << 18  # bytes of a captured array up to which a copy takes less time than a new plan


def as_mask(rule) -> Expr | None:
    """The mask as an expression: an expression unchanged, a boolean array as a read, a callable traced."""
    found = _read(rule, "mask", masks.dense)
    if found is not None and found.kind != "bool":
        raise refuse(
            "mask",
            "a mask must be a condition",
            f"`{found!r}`, which is {found.kind}",
            "true where a query may attend",
            "compare it with something, or "
            + ("pass it as score=" if found.scored else f"add it to the scores: score=score + ({found})"),
        )
    if found is not None and found.scored:
        raise refuse(
            "mask",
            "a mask cannot depend on the score",
            f"`{found!r}`",
            "a rule over positions",
            "use score=where(condition, score, float('-inf'))",
        )
    return found


def as_score(rule) -> Expr | None:
    """The score as an expression: an expression unchanged, a float array added to the score, a callable traced."""
    found = _read(rule, "score", scores.bias)
    if found is not None and found.kind == "bool":
        raise refuse(
            "score",
            "a score must be a number",
            f"`{found!r}`, which is a condition",
            "a rule that computes the new logit",
            "pass it as mask=, true where a row may attend",
        )
    return found


def _read(rule, what: str, of_array: Callable[[Any], Expr]) -> Expr | None:
    """The rule as an expression; a vector is rejected, and a rule over tensors of a program that torch records."""
    if isinstance(rule, str | bool | np.bool_):
        return _of_scalar(rule, what)
    if not (rule is None or isinstance(rule, Expr | Traced | Vector)):
        rule = _trace(rule, what) if callable(rule) else of_array(rule)
    if isinstance(rule, Vector):
        raise refuse(
            what,
            f"a {what} is one {'condition' if what == 'mask' else 'number'} for each pair",
            f"`{rule!r}`",
            "an expression without axes",
            "index all axes of the array, as in table(a)[query, key], or make one number of its elements: .sum(-1), "
            ".any(-1), .all(-1), a @ b",
        )
    if isinstance(rule, Traced) and compiling() and all(isinstance(part, str) for part in rule.parts):
        return getattr(_built, _build("".join(rule.parts)))
    if isinstance(rule, Traced):
        raise refuse(
            what,
            f"this {what} belongs to a program that torch records",
            "a rule over tensors of torch.compile, torch.func or another transform",
            "a rule over arrays that have numbers",
            "use it in regard.attention inside the same program, or build it outside",
        )
    return rule


class _Built:
    """Rules that torch.compile built while it traced, as attributes, from which it can read them."""


_built = _Built()


def _build(text: str) -> str:
    """Builds the rule of a text without tensors; returns the name of its attribute."""
    rule = read(text, ())
    setattr(_built, rule.digest, rule)
    return rule.digest


_build._dynamo_marked_constant = True  # type: ignore[attr-defined] # torch.compile calls it while it traces


def _of_scalar(rule, what: str) -> Expr:
    """True and False as rules; a string is rejected."""
    if not isinstance(rule, str):
        return expr.lift(bool(rule))
    known = (masks if what == "mask" else scores).__all__
    raise refuse(
        what,
        f"a {what} is a rule, not a name",
        repr(rule),
        "an expression, a callable, or an array",
        f"write {what}={_call(what, rule)}" if rule in known else did_you_mean(rule, known),
    )


def _call(what: str, name: str) -> str:
    """How a ready-made mask or score is called."""
    function = getattr(masks if what == "mask" else scores, name)
    return f"regard.{name}({'…' if inspect.signature(function).parameters else ''})"


def _trace(rule, what: str) -> Any:
    name = getattr(rule, "__name__", "")
    places = (expr.batch, expr.head, expr.query, expr.key)
    symbols = places if what == "mask" else (expr.score, *places)
    if getattr(masks if what == "mask" else scores, name, None) is rule:
        raise refuse(
            what,
            f"regard.{name} is a function that returns a {what}",
            f"{what}=regard.{name}",
            "the expression that it returns",
            f"call it: {what}={_call(what, name)}",
        )
    try:
        traced = expr.lift(_with_tables(rule, {})(*symbols))
    except Refused:
        raise
    except Exception as error:  # the user's code is run, which may raise anything
        names = ", ".join(repr(symbol) for symbol in symbols)
        fix = "index captured arrays with table(array)[…]; use & | ~ and where, not and, or, not, if"
        if isinstance(error, AttributeError) and isinstance(error.obj, Syntax):
            fix = did_you_mean(error.name or "", METHODS, LISTED)
        elif isinstance(error, TypeError) and not error.__traceback__.tb_next:  # type: ignore[union-attr] # never begun
            fix = f"take all of them: lambda {names}: …"
        raise refuse(
            what,
            "the callable cannot be traced",
            f"{type(error).__name__} while it ran on symbols: {error}",
            f"a function of ({names})",
            fix,
        ) from error
    return expr.replace_tables(traced, _kept) if isinstance(traced, Expr) and traced.tables else traced


def _kept(live: Table) -> Table:
    """A copy of a small table of integers or booleans: calls with the same numbers share what is computed from them.
    Floats stay, for their gradients.
    """
    array = live.array
    small = live.kind != "float" and not elsewhere(live.source) and array.nbytes <= COPIED
    return expr.frozen_table(array, live.name) if small and not live.frozen else live


def _with_tables(rule, copies: dict[int, Any]):
    """A callable with the same code, in which every captured array is a table."""
    if id(rule) in copies:
        return copies[id(rule)]
    if isinstance(rule, functools.partial):
        parts = (_readable(part, copies) for part in rule.args)
        named = {name: _readable(part, copies) for name, part in rule.keywords.items()}
        return functools.partial(_with_tables(rule.func, copies), *parts, **named)
    if isinstance(rule, types.MethodType):
        return types.MethodType(_with_tables(rule.__func__, copies), Owner(rule.__self__, copies))
    if isinstance(rule, types.FunctionType):
        return _rebound(rule, copies)
    own = inspect.getattr_static(type(rule), "__call__", None)
    return _with_tables(types.MethodType(own, rule), copies) if isinstance(own, types.FunctionType) else rule


def _rebound(rule: types.FunctionType, copies: dict[int, Any]):
    """A copy of the function in which arrays in globals, closure and defaults are tables; globals of a library are not
    replaced.
    """
    cells = tuple(types.CellType() for _ in rule.__closure__ or ())
    scope = rule.__globals__ if _from_library(rule) else dict(rule.__globals__)
    made = types.FunctionType(rule.__code__, scope, rule.__name__, rule.__defaults__, cells)
    copies[id(rule)] = made  # before its parts, so that a recursive rule ends
    if not _from_library(rule):
        for name in _names(rule.__code__) & scope.keys():
            scope[name] = _readable(scope[name], copies)
    for cell, original in zip(cells, rule.__closure__ or (), strict=True):
        cell.cell_contents = _readable(original.cell_contents, copies)
    made.__defaults__ = tuple(_readable(part, copies) for part in rule.__defaults__ or ())
    made.__kwdefaults__ = {name: _readable(part, copies) for name, part in (rule.__kwdefaults__ or {}).items()}
    return made


def _names(code: types.CodeType) -> set[str]:
    """The global names that the code and its nested functions use."""
    nested = (_names(constant) for constant in code.co_consts if isinstance(constant, types.CodeType))
    return set(code.co_names).union(*nested)


def _from_library(rule) -> bool:
    """Whether a library defines the function: its code supports symbols through protocols, only its closure may not."""
    package = getattr(rule, "__module__", None) or ""
    return package.split(".")[0] in ("torch", "numpy", "regard", "builtins")


class Owner:
    """A proxy of the object of a method, in which arrays are tables."""

    def __init__(self, owner, copies: dict[int, Any]):
        self._owner, self._copies = owner, copies

    def __getattr__(self, name: str):
        value = getattr(self._owner, name)
        if isinstance(value, types.MethodType) and value.__self__ is self._owner:
            return types.MethodType(_with_tables(value.__func__, self._copies), self)
        return _readable(value, self._copies)


def _readable(value, copies: dict[int, Any]):
    """A captured value as the traced callable uses it."""
    if isinstance(value, Expr | Table | type | types.ModuleType):
        return value
    if isinstance(value, types.FunctionType | types.MethodType | functools.partial):
        plain = _from_library(value) and not getattr(value, "__closure__", None)
        return value if plain else _with_tables(value, copies)
    if type(value) in (tuple, list):
        return type(value)(_readable(part, copies) for part in value)
    if type(value) is dict:
        return {name: _readable(part, copies) for name, part in value.items()}
    if hasattr(value, "__array__") and getattr(value, "shape", ()) != ():
        return Captured(table(value))
    return value
