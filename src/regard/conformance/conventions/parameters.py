"""Parameter: the parameters of the function that is judged, from its signature or its docstring."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Parameter:
    """One parameter of a function.

    kind: "positional" if it is passed by position only, "keyword" if by name only, "either", "rest" for *args, "names"
    for **kwargs · required: whether it has no default · annotation: its text
    """

    name: str
    kind: str = "either"
    required: bool = False
    annotation: str = ""


KINDS = {
    inspect.Parameter.POSITIONAL_ONLY: "positional",
    inspect.Parameter.POSITIONAL_OR_KEYWORD: "either",
    inspect.Parameter.KEYWORD_ONLY: "keyword",
    inspect.Parameter.VAR_POSITIONAL: "rest",
    inspect.Parameter.VAR_KEYWORD: "names",
}


def parameters_of(function: Callable[..., Any]) -> tuple[Parameter, ...]:
    """The parameters of a function, of a module's `forward`, or those that a docstring begins with; () if unknown."""
    called = getattr(function, "forward", function) if not inspect.isroutine(function) else function
    try:
        signature = inspect.signature(called)
    except (TypeError, ValueError):  # compiled functions have none
        return _from_docstring(getattr(called, "__doc__", None) or "")
    return tuple(
        Parameter(
            name=each.name,
            kind=KINDS[each.kind],
            required=each.default is each.empty and KINDS[each.kind] not in ("rest", "names"),
            annotation="" if each.annotation is each.empty else inspect.formatannotation(each.annotation),
        )
        for each in signature.parameters.values()
    )


def _from_docstring(text: str) -> tuple[Parameter, ...]:
    """The parameters in a line such as `name(q, k, v, *, mask=None) -> Tensor`, as docstrings of compiled functions
    have it."""
    found = re.search(r"^\s*[\w.]+\(([^()]*)\)", text, re.M)
    if not found:
        return ()
    try:
        definition = ast.parse(f"def f({found[1]}): ...").body[0]
    except SyntaxError:
        return ()
    assert isinstance(definition, ast.FunctionDef)
    arguments = definition.args
    positions = [*arguments.posonlyargs, *arguments.args]
    first_default = len(positions) - len(arguments.defaults)
    listed = [
        Parameter(
            name=each.arg,
            kind="positional" if number < len(arguments.posonlyargs) else "either",
            required=number < first_default,
        )
        for number, each in enumerate(positions)
    ]
    listed += [
        Parameter(name=each.arg, kind="keyword", required=default is None)
        for each, default in zip(arguments.kwonlyargs, arguments.kw_defaults)
    ]
    if arguments.kwarg:
        listed.append(Parameter(name=arguments.kwarg.arg, kind="names"))
    return tuple(listed)
