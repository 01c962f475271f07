"""What functions return, made comparable: numbers, arrays of NumPy and torch, scalars with gradients, and nests of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

__all__ = ["agree", "plain", "shape_of", "shown"]

MOST = 24  # numbers that are shown of one array


def plain(value: Any) -> Any:
    """A copy as NumPy arrays in float64 (or bool), tuples, dicts, texts and None."""
    if value is None or isinstance(value, str):
        return value
    if hasattr(value, "detach"):
        value = value.detach().cpu()
        value = value.numpy() if value.dtype.is_floating_point is False else value.double().numpy()
    if isinstance(value, Mapping):
        return {str(name): plain(each) for name, each in value.items()}
    if isinstance(value, np.ndarray) and value.dtype != object:
        return value.copy() if value.dtype == bool else np.asarray(value, np.float64).copy()
    if isinstance(value, tuple) and any(_ndim(each) for each in value):
        return tuple(plain(each) for each in value)
    if isinstance(value, (list, tuple, np.ndarray)):
        parts = [plain(each) for each in value]
        same = len({each.shape if isinstance(each, np.ndarray) else None for each in parts}) == 1
        return np.array(parts) if parts and same and isinstance(parts[0], np.ndarray) else tuple(parts) or np.zeros(0)
    if isinstance(value, (bool, np.bool_)):
        return np.array(bool(value))
    if hasattr(value, "data") and isinstance(value.data, (int, float)):  # a scalar with a gradient
        return np.array(float(value.data))
    try:
        return np.array(float(value))
    except (TypeError, ValueError):
        return f"an object of the type {type(value).__name__}"


def _ndim(value: Any) -> int:
    return getattr(value, "ndim", 0) or (1 if isinstance(value, (list, tuple)) else 0)


def agree(first: Any, second: Any, digits: float) -> bool:
    """Whether two plain values are equal but for rounding. NaN equals NaN. digits: the relative and absolute limit."""
    if isinstance(first, np.ndarray) and isinstance(second, np.ndarray):
        if first.shape != second.shape or (first.dtype == bool) != (second.dtype == bool):
            return False
        if first.dtype == bool:
            return bool((first == second).all())
        return bool(np.allclose(first, second, rtol=digits, atol=digits, equal_nan=True))
    if isinstance(first, tuple) and isinstance(second, tuple):
        return len(first) == len(second) and all(agree(a, b, digits) for a, b in zip(first, second))
    if isinstance(first, dict) and isinstance(second, dict):
        return first.keys() == second.keys() and all(agree(first[name], second[name], digits) for name in first)
    return type(first) is type(second) and bool(first == second)


def shape_of(value: Any) -> Any:
    """The shape of a plain value; of several, a tuple of shapes."""
    if isinstance(value, np.ndarray):
        return value.shape
    if isinstance(value, tuple):
        return tuple(shape_of(each) for each in value)
    return type(value).__name__


def shown(value: Any) -> str:
    """A plain value as text: short arrays whole, of longer ones the shape and the first numbers."""
    if isinstance(value, np.ndarray):
        if value.size > MOST:
            first = ", ".join(_digits(each) for each in value.ravel()[:4])
            return f"an array of the shape {value.shape}: {first}, …"
        return np.array2string(value, separator=", ", formatter={"float_kind": _digits}, max_line_width=100)
    if isinstance(value, tuple):
        return f"({', '.join(shown(each) for each in value)})"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name}: {shown(each)}" for name, each in value.items()) + "}"
    return "None" if value is None else str(value)


def _digits(number: float) -> str:
    return f"{number:.5g}"
