"""The structure of what a function returned, as plain JSON: which arrays, of which shapes, in which containers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from .arrays import array_kind, dtype_name, type_words

__all__ = ["structure"]

MOST = 16  # entries of a container that are described


def structure(result: Any, depth: int = 2) -> dict[str, Any]:
    """{"is": "array", "arrays", "dtype", "shape"}, {"is": "sequence", "entries": […]}, {"is": "mapping", "entries":
    {key: …}} for mappings with names as keys and objects with attributes, or {"is": its type}."""
    kind = array_kind(result)
    if kind:
        shape = [int(size) for size in result.shape]
        return {"is": "array", "arrays": kind, "dtype": dtype_name(result), "shape": shape}
    if depth and isinstance(result, (tuple, list)) and len(result) <= MOST:
        return {"is": "sequence", "entries": [structure(each, depth - 1) for each in result]}
    entries: dict[str, Any] = {}
    if isinstance(result, Mapping):
        entries = {key: value for key, value in result.items() if isinstance(key, str)}
    elif is_dataclass(result) and not isinstance(result, type):
        entries = {each.name: getattr(result, each.name) for each in fields(result)}
    elif hasattr(result, "__dict__") and not isinstance(result, type):
        entries = {name: value for name, value in vars(result).items() if array_kind(value)}
    if depth and entries:
        listed = list(entries.items())[:MOST]
        return {"is": "mapping", "entries": {key: structure(value, depth - 1) for key, value in listed}}
    return {"is": type_words(result)}
