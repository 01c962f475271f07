"""Adapters as JSON and as a decorator: read with every problem named, and written so that reading gives the same."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar

from ...common.errors import Reason, Refused, did_you_mean, page, refuse, refuse_all
from ...common.files.strict_json import loads
from .fields import ATTRIBUTE, VERSION, Adapter, properties, schema
from .parameters import missing_parameters, parameters_of

__all__ = ["from_json", "read_adapter", "schema", "to_json"]

# Conventions that only say something about functions with one of these roles.
NEEDS = {
    "mask": ("mask",),
    "mask_shapes": ("mask", "bias"),
    "causal": ("causal", "window", "window_before", "start"),
    "window": ("window", "window_before"),
    "softcap": ("softcap",),
    "empty_row": ("mask", "lengths", "causal"),
}
WRITTEN = ("name", "arrays", "layout", "parameters", "groups", "scale", "dtypes", "gradients", "returns", "confirmed")


def to_json(adapter: Adapter) -> dict[str, Any]:
    """The adapter in the types of JSON. Fields that say nothing about the function are left out."""
    found: dict[str, Any] = {"schema": VERSION}
    for each in fields(Adapter):
        name, value = each.name, getattr(adapter, each.name)
        if name != "declared" and (value != getattr(Adapter(), name) or _says_something(name, adapter)):
            found[name] = list(value) if isinstance(value, tuple) else value
    return found


def _says_something(name: str, adapter: Adapter) -> bool:
    """Whether the usual value of a field is worth reading."""
    if name in ("lse", "lse_layout"):
        return "lse" in adapter.returns
    if name == "empty_lse":
        return "lse" in adapter.returns and any(role in adapter.parameters for role in NEEDS["empty_row"])
    if name in NEEDS:
        return any(role in adapter.parameters for role in NEEDS[name])
    return name in adapter.declared or (name in WRITTEN and name != "name")


def read_adapter(path: str | Path) -> Adapter:
    """Reads an adapter from a JSON file.

    Args:
        path: the file; docs/reference/adapters.md lists its fields.

    Returns:
        The adapter.

    Raises:
        Refused: the file does not exist, is not JSON, or has wrong fields; every problem is listed.

    Examples:
        >>> from pathlib import Path; from tempfile import mkdtemp
        >>> from regard.conformance import read_adapter
        >>> file = Path(mkdtemp(), "mine.json")
        >>> _ = file.write_text('{"schema": 1, "layout": "BSHD"}')
        >>> read_adapter(file).layout
        'BSHD'
    """
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise _unreadable(path, error) from error
    try:
        data = loads(text.encode())
    except ValueError as error:
        given = f"{path}: {error}"
        fix = 'begin with {"schema": 1}; regard conform FUNCTION --infer writes one'
        raise refuse(WHERE, "the file is not JSON", given, "a JSON object", fix) from error
    return from_json(data, str(path))


def _unreadable(path: Path, error: Exception) -> Refused:
    """The refusal of a file that cannot be read."""
    if isinstance(error, FileNotFoundError):
        near = sorted(each.name for each in path.parent.glob("*.json")) if path.parent.is_dir() else []
        fix = did_you_mean(path.name, near[:12]) if near else "regard conform FUNCTION --infer writes one"
        return refuse(WHERE, "the file does not exist", str(path), "a JSON file", fix)
    given = f"{path}: {getattr(error, 'strerror', None) or error}"
    fix = "name a text file that can be read"
    return refuse(WHERE, "the file cannot be read", given, "a JSON file in UTF-8", fix)


def from_json(data: Any, source: str = "") -> Adapter:
    """The adapter of a JSON object. source: the file, for messages.

    Raises:
        Refused: with every problem of the fields.
    """
    if not isinstance(data, Mapping):
        given = f"{source}: {type(data).__name__}" if source else type(data).__name__
        raise refuse(WHERE, "it is not an object", given, "a JSON object", 'write {"schema": 1, …}')
    reasons = []
    if data.get("schema", VERSION) != VERSION or isinstance(data.get("schema"), (bool, float)):
        given = repr(data["schema"]) if "schema" in data else "no schema"
        fix = f'write "schema": {VERSION}'
        reasons.append(Reason("schema is not known", given, f"schema {VERSION}", fix))
    rest = {name: value for name, value in data.items() if name != "schema"}
    reasons += problems(rest)
    refuse_all(f"{WHERE} {source}".strip(), reasons)
    values: dict[str, Any] = {name: tuple(each) if isinstance(each, list) else each for name, each in rest.items()}
    return Adapter(**values, declared=tuple(rest))


F = TypeVar("F", bound=Callable[..., Any])
LISTS = ("always", "mask_shapes", "dtypes")


def adapter(**fields: Any) -> Callable[[F], F]:
    """Declares the conventions of an attention function, for `regard conform`.

    The function itself is not changed: the fields are kept in its attribute `__regard_adapter__`.

    Args:
        fields: as in docs/reference/adapters.md. Lists of words may be written as one string, as in
            `dtypes="float32 bfloat16"`; `scale="argument"` is the usual scale of 1/√D.

    Returns:
        The decorator.

    Raises:
        Refused: a field is unknown or has a wrong value, or the function lacks a parameter that is named.

    Examples:
        >>> from regard.conformance import adapter
        >>> @adapter(layout="BSHD", causal="top-left", dtypes="float32 float64")
        ... def attention(q, k, v, *, causal=False): ...
        >>> attention.__regard_adapter__.dtypes
        ('float32', 'float64')
    """
    found = from_json({"schema": VERSION} | {name: _as_json(name, value) for name, value in fields.items()})

    def declare(function: F) -> F:
        refuse_all(WHERE, list(missing_parameters(found.parameters, found.fixed, parameters_of(function))))
        setattr(function, ATTRIBUTE, found)
        return function

    return declare


def _as_json(name: str, value: Any) -> Any:
    """A field as JSON has it: words in one string are a list, and so is a tuple."""
    if isinstance(value, str) and (name in LISTS or (name == "returns" and " " in value)):
        return value.split()
    if isinstance(value, str) and name == "scale" and value in ("argument", "1/√D"):
        return None
    return list(value) if isinstance(value, tuple) else value


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
    """What is wrong with a field, or a part of one, by its schema. words: what the field expects."""
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
        yield from _items(name, value, kind, words)
    elif isinstance(value, Mapping):
        yield from _entries(name, value, kind, words)


def _items(name: str, value: list[Any], kind: Mapping[str, Any], words: str) -> Iterator[Reason]:
    """What is wrong with the items of a list."""
    for each in value:
        yield from _field(name, each, kind["items"], words)
    if "contains" in kind and "out" not in value:
        yield Reason(f"{name} has no out", repr(value), words, 'add "out" where the output is')
    elif len(value) < kind.get("minItems", 0):
        yield Reason(f"{name} is empty", "[]", words, f"omit {name}")
    if twice := [each for each, count in Counter(map(repr, value)).items() if count > 1 and each != "None"]:
        yield Reason(f"{name} has a value twice", ", ".join(twice), "each value once", "remove the second")


def _entries(name: str, value: Mapping[str, Any], kind: Mapping[str, Any], words: str) -> Iterator[Reason]:
    """What is wrong with the entries of an object."""
    parts = kind.get("properties", {})
    known = kind.get("propertyNames", {}).get("enum") or parts
    for part in kind.get("required", ()):
        if part not in value:
            yield Reason(f"{name} has no {part}", repr(value), words, f'add "{part}"')
    for key, each in value.items():
        if known and key not in known:
            yield Reason(f"{name} has no entry {key}", str(key), words, _near(key, known))
        elif part := parts.get(key) or kind.get("additionalProperties"):
            yield from _field(f"{name}: {key}", each, part, words)


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
