"""The decorator with which a function declares its conventions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from ...common.errors import Refused
from .adapter_file import from_json
from .parameters import parameters_of
from .schema import VERSION
from .validation import WHERE, missing_parameters

F = TypeVar("F", bound=Callable[..., Any])
ATTRIBUTE = "__regard_adapter__"
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
