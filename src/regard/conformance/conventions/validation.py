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
from .fields import RETURNED, properties


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
            found += _field(name, value, known[name])
        else:
            found.append(_unknown(str(name), known))
    if isinstance(data.get("parameters"), Mapping):
        found += _shared(data["parameters"], data.get("fixed"))
    confirmed = data.get("confirmed")
    if isinstance(confirmed, list):
        for name in confirmed:
            if isinstance(name, str) and name not in known:
                found.append(Reason(f"confirmed: {name} is not a field", name, "names of fields", _near(name, known)))
    return found


def _near(word: str, known: Iterable[str]) -> str:
    """The closest spelling, or where the names are listed."""
    return did_you_mean(word, known, PAGE)


def _unknown(name: str, known: Iterable[str]) -> Reason:
    """A field that does not exist."""
    fix = "omit it; the parameters of the function say what it takes" if name == "takes" else _near(name, known)
    return Reason(f"{name} is not a field", name, "the fields of an adapter", fix)


def _field(name: str, value: Any, kind: Mapping[str, Any]) -> Iterator[Reason]:
    """What is wrong with one field."""
    if "enum" in kind:
        if not isinstance(value, str) or value not in kind["enum"]:
            fix = _near(value, kind["enum"]) if isinstance(value, str) else _near("", kind["enum"])
            yield Reason(f"{name} has no such value", repr(value), kind["description"], fix)
        return
    if not _is(value, kind) or (isinstance(value, float) and not math.isfinite(value)):
        yield Reason(f"{name} has the wrong type", repr(value), kind["description"], _default(name))
        return
    if kind.get("minimum") is not None and value is not None and value < kind["minimum"]:
        yield Reason(f"{name} is too small", repr(value), kind["description"], _default(name))
    if isinstance(value, list) and name != "returns":
        items = kind.get("items", {})
        yield from _items(name, value, items.get("enum"), kind)
    if isinstance(value, Mapping) and name != "returns":
        yield from _entries(name, value, kind)
    if name == "returns" and not isinstance(value, str):
        yield from _returns(value)


def _is(value: Any, kind: Mapping[str, Any]) -> bool:
    """Whether a value has the type of a field."""
    if "anyOf" in kind:
        return any(_is(value, each) or ("enum" in each and value in each["enum"]) for each in kind["anyOf"])
    names = kind.get("type", ())
    checks = {
        "string": isinstance(value, str),
        "object": isinstance(value, Mapping),
        "array": isinstance(value, list),
        "boolean": isinstance(value, bool),
        "integer": isinstance(value, int) and not isinstance(value, bool),
        "number": isinstance(value, (int, float)) and not isinstance(value, bool),
        "null": value is None,
    }
    return any(checks[each] for each in ([names] if isinstance(names, str) else names))


def _default(name: str) -> str:
    return f"omit {name} for that of the laws; {PAGE} lists the fields"


def _items(name: str, value: Sequence[Any], choices: Sequence[Any] | None, kind: Mapping[str, Any]) -> Iterator[Reason]:
    """What is wrong with the items of a list."""
    if len(value) < kind.get("minItems", 0):
        yield Reason(f"{name} is empty", "[]", kind["description"], _default(name))
    for each in value:
        if choices is not None and each not in choices:
            yield Reason(f"{name} has no such value", repr(each), kind["description"], _near(str(each), choices))
        elif choices is None and not isinstance(each, str):
            yield Reason(f"{name} has the wrong type", repr(each), kind["description"], _default(name))
    twice = [each for each, count in Counter(map(repr, value)).items() if count > 1]
    if twice:
        yield Reason(f"{name} has a value twice", ", ".join(twice), "each value once", "remove the second")


def _entries(name: str, value: Mapping[str, Any], kind: Mapping[str, Any]) -> Iterator[Reason]:
    """What is wrong with the entries of an object."""
    names = kind.get("propertyNames", {}).get("enum")
    for key, each in value.items():
        if names is not None and key not in names:
            yield Reason(f"{name}: {key} is not a role", str(key), kind["description"], _near(str(key), names))
        elif names is not None and not isinstance(each, str):
            yield Reason(f"{name}: {key} has the wrong type", repr(each), "the name of a parameter", _default(name))
        elif name == "expected":
            yield from _expectation(key, each, kind)


def _expectation(key: str, value: Any, kind: Mapping[str, Any]) -> Iterator[Reason]:
    """What is wrong with one expected failure."""
    fix = f'write "{key}": {{"reason": "…", "link": "…"}}'
    if not isinstance(value, Mapping) or "reason" not in value:
        yield Reason(f"expected: {key} has no reason", repr(value), kind["description"], fix)
        return
    wrong = [name for name, each in value.items() if name not in ("reason", "link") or not isinstance(each, str)]
    if wrong:
        yield Reason(f"expected: {key} has other entries", ", ".join(map(str, wrong)), kind["description"], fix)


def _returns(value: Sequence[Any] | Mapping[str, Any]) -> Iterator[Reason]:
    """What is wrong with the description of what is returned."""
    expected = properties()["returns"]["description"]
    if isinstance(value, Mapping):
        for key, each in value.items():
            if key not in RETURNED:
                yield Reason("returns has no such value", str(key), expected, _near(str(key), RETURNED))
            elif not isinstance(each, str):
                yield Reason(f"returns: {key} has the wrong type", repr(each), "a key", _default("returns"))
    else:
        for each in value:
            if each not in (*RETURNED, None):
                fix = _near(str(each), RETURNED)
                yield Reason("returns has no such value", repr(each), expected, fix)
        twice = [each for each, count in Counter(each for each in value if isinstance(each, str)).items() if count > 1]
        if twice:
            yield Reason("returns has a value twice", ", ".join(twice), "each value once", "write null for the second")
    if "out" not in value:
        yield Reason("returns has no output", repr(value), expected, 'add "out" where the output is')


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
