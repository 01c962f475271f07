"""Adapters as JSON and as a decorator: read with every problem named, and written so that reading gives the same."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar

from ...common.errors import Reason, Refused, did_you_mean, refuse
from ...common.files.strict_json import loads
from .fields import ATTRIBUTE, VERSION, Adapter, from_plain, schema
from .validation import WHERE, missing_parameters, parameters_of, problems

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
    if reasons:
        raise Refused(f"{WHERE} {source}".strip(), reasons)
    return from_plain(rest | {"declared": list(rest)})


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
        reasons = list(missing_parameters(found.parameters, found.fixed, parameters_of(function)))
        if reasons:
            raise Refused(WHERE, reasons)
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
