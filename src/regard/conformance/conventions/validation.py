"""What is wrong with the fields of an adapter: every problem at once, with what was given, expected, and the fix."""

from __future__ import annotations

import ast
import inspect
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...common.errors import Reason, did_you_mean, page
from .fields import properties


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


WHERE = "adapter"
PAGE = page("Adapters")
# Roles that one parameter may have together.
SHARED = frozenset({"mask", "bias"})


def problems(data: Mapping[str, Any]) -> list[Reason]:
    """What is wrong with these fields, given as in JSON."""
    known = properties()
    found: list[Reason] = []
    for name, value in data.items():
        if name in known:
            found += _field(name, value, known[name], known[name]["description"])
        else:
            found.append(Reason(f"{name} is not a field", str(name), "the fields of an adapter", _near(name, known)))
    if isinstance(data.get("parameters"), Mapping):
        found += _shared(data["parameters"], data.get("fixed"))
    confirmed = data.get("confirmed")
    if isinstance(confirmed, list):
        for name in confirmed:
            if isinstance(name, str) and name not in known:
                found.append(Reason(f"confirmed: {name} is not a field", name, "names of fields", _near(name, known)))
    return found


def _near(word: Any, known: Iterable[str]) -> str:
    """The closest spelling, or where the names are listed."""
    return did_you_mean(word if isinstance(word, str) else "", known, PAGE)


TYPES: dict[str, Any] = {
    "string": str,
    "object": Mapping,
    "array": list,
    "boolean": bool,
    "integer": int,
    "number": (int, float),
    "null": type(None),
}


def _is(value: Any, kind: Mapping[str, Any]) -> bool:
    """Whether a value has the type of a schema; numbers are finite, and neither true nor false."""
    if isinstance(value, float) and not math.isfinite(value):
        return False
    names = kind.get("type", [])
    listed = [names] if isinstance(names, str) else names
    return any(isinstance(value, TYPES[each]) and (each == "boolean" or not isinstance(value, bool)) for each in listed)


def _field(name: str, value: Any, kind: Mapping[str, Any], words: str) -> Iterator[Reason]:
    """What is wrong with a field, or an item of it, by its schema. words: what the field expects."""
    default = f"omit {name} for that of the laws; {PAGE} lists the fields"
    if "anyOf" in kind:
        kind = next((each for each in kind["anyOf"] if _is(value, each) or value in each.get("enum", ())), {})
    if "enum" in kind:
        if value not in kind["enum"]:
            yield Reason(f"{name} has no such value", repr(value), words, _near(value, filter(None, kind["enum"])))
    elif not _is(value, kind):
        yield Reason(f"{name} has the wrong type", repr(value), words, default)
    elif value is not None and "minimum" in kind and value < kind["minimum"]:
        yield Reason(f"{name} is too small", repr(value), words, default)
    elif isinstance(value, list):
        for each in value:
            yield from _field(name, each, kind["items"], words)
        null = "contains" in kind
        if null and "out" not in value:
            yield _without_output(value, words)
        elif len(value) < kind.get("minItems", 0):
            yield Reason(f"{name} is empty", "[]", words, default)
        if twice := [each for each, count in Counter(map(repr, value)).items() if count > 1 and each != "None"]:
            fix = f"{'write null for' if null else 'remove'} the second"
            yield Reason(f"{name} has a value twice", ", ".join(twice), "each value once", fix)
    elif isinstance(value, Mapping):
        yield from _entries(name, value, kind, words, default)


def _without_output(value: Any, words: str) -> Reason:
    return Reason("returns has no output", repr(value), words, 'add "out" where the output is')


def _entries(
    name: str, value: Mapping[str, Any], kind: Mapping[str, Any], words: str, default: str
) -> Iterator[Reason]:
    """What is wrong with the entries of an object."""
    roles = kind.get("propertyNames", {}).get("enum")
    for key, each in value.items():
        if name == "expected":
            yield from _expectation(key, each, words)
        elif roles and key not in roles:
            what = f"{name}: {key} is not a role" if name == "parameters" else f"{name} has no such value"
            yield Reason(what, str(key), words, _near(key, roles))
        elif roles and not isinstance(each, str):
            expected = "the name of a parameter" if name == "parameters" else "a key"
            yield Reason(f"{name}: {key} has the wrong type", repr(each), expected, default)
    if "required" in kind and "out" not in value:
        yield _without_output(value, words)


def _expectation(key: str, value: Any, words: str) -> Iterator[Reason]:
    """What is wrong with one expected failure."""
    fix = f'write "{key}": {{"reason": "…", "link": "…"}}'
    if not isinstance(value, Mapping) or "reason" not in value:
        yield Reason(f"expected: {key} has no reason", repr(value), words, fix)
    elif wrong := [name for name, each in value.items() if name not in ("reason", "link") or not isinstance(each, str)]:
        yield Reason(f"expected: {key} has other entries", ", ".join(map(str, wrong)), words, fix)


def _shared(parameters: Mapping[str, Any], fixed: Any) -> Iterator[Reason]:
    """Parameters with several roles, or with a role and a fixed value."""
    by_name: dict[str, list[str]] = {}
    for role, name in parameters.items():
        if isinstance(name, str):
            by_name.setdefault(name, []).append(str(role))
    for name, roles in by_name.items():
        if len(roles) > 1 and not set(roles) <= SHARED:
            given = f"{name} is {' and '.join(roles)}"
            yield Reason(
                "a parameter has two roles", given, "one role; mask and bias may share one", "keep one of them"
            )
        if isinstance(fixed, Mapping) and name in fixed:
            given = f"{name} is {roles[0]}, and fixed"
            yield Reason("a parameter has a role and a fixed value", given, "one of both", "remove one of them")


def missing_parameters(
    parameters: Mapping[str, str], fixed: Iterable[str], accepted: Sequence[Parameter]
) -> Iterator[Reason]:
    """Declared names that the function does not accept."""
    if not accepted or any(each.kind == "names" for each in accepted):
        return
    known = [each.name for each in accepted if each.kind != "rest"]
    declared = [
        *((f"parameters: {role} is {name}", name) for role, name in parameters.items()),
        *((f"fixed value of {name}", name) for name in fixed),
    ]
    for given, name in declared:
        if name not in known:
            yield Reason(f"no parameter {name}", given, f"one of {', '.join(known)}", did_you_mean(name, known))
