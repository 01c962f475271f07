"""The structure of what a function returned, as plain JSON: which arrays, of which shapes, in which containers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from .layouts import NAMES, array_kind, dtype_name, type_words

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


def checked(described: Any, depth: int = 3) -> dict[str, Any] | None:
    """A description that another process sent, or None if `structure` did not make it. Raises ValueError for others."""
    if described is None:
        return None
    if not isinstance(described, dict) or not isinstance(described.get("is"), str) or not depth:
        raise ValueError("not a description of a result")
    entries = described.get("entries", [])
    if described["is"] == "array":
        if described.get("arrays") not in NAMES or not isinstance(described.get("dtype"), str):
            raise ValueError("not a description of an array")
        if not all(type(size) is int for size in described["shape"]):
            raise ValueError("not a shape")
    elif described["is"] == "sequence" and isinstance(entries, list):
        described = {"is": "sequence", "entries": [checked(each, depth - 1) for each in entries]}
    elif described["is"] == "mapping" and isinstance(entries, dict):
        described = {"is": "mapping", "entries": {key: checked(each, depth - 1) for key, each in entries.items()}}
    elif entries:
        raise ValueError("entries of something that has none")
    return described
