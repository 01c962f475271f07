"""The cases of an exercise, the smallest first, and how values are compared and shown."""

from __future__ import annotations

import contextlib
import importlib
import io
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from ..chapter import Exercise
from ..running import executed

Case = dict[str, Any]


def cases_of(exercise: Exercise) -> list[Case]:
    """The arguments of each case by name; the same in every run."""
    found: list[Case] = []
    rng = np.random.default_rng(7)

    def case(**arguments: Any) -> None:
        found.append(arguments)

    def whole(*shape: int) -> np.ndarray:
        """Small whole numbers: products can be computed by hand."""
        return rng.integers(-3, 4, shape).astype(np.float64)

    def normal(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape)

    names: dict[str, Any] = {"case": case, "whole": whole, "normal": normal, "np": np, "rng": rng}
    if exercise.needs:
        names["torch"] = importlib.import_module("torch")
        names["filled"] = filled
    with contextlib.redirect_stdout(io.StringIO()):
        executed(exercise.cases, f"cases of {exercise.name}", names)
    return found


def filled(module: Any, seed: int = 0) -> Any:
    """A torch module whose parameters are drawn again, each by its name and shape: two modules with the same names of
    parameters get the same numbers, in whatever order they were made.
    """
    torch = importlib.import_module("torch")
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            rng = np.random.default_rng([seed, *name.encode()])
            drawn = rng.standard_normal(tuple(parameter.shape)) / max(parameter.shape[-1:] or [1]) ** 0.5
            parameter.copy_(torch.as_tensor(drawn, dtype=parameter.dtype))
    return module


MOST = 24  # numbers that are shown of one array
LARGEST = 10_000_000  # numbers of an array that is compared


def plain(value: Any) -> Any:
    """A copy as NumPy arrays in float64 (or bool), tuples, dicts, texts and None."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, Mapping):
        return {str(name): plain(each) for name, each in value.items()}
    if math.prod(getattr(value, "shape", ())) > LARGEST:
        # Much larger than any right result, so that its numbers do not matter. This takes no memory.
        return np.broadcast_to(np.nan, tuple(value.shape))
    if hasattr(value, "detach"):
        value = value.detach().cpu()
        value = (value.double() if value.dtype.is_floating_point else value).numpy()
    if isinstance(value, np.ndarray) and value.dtype != object:
        if value.dtype.kind not in "biuf":
            return f"an object of the type array of {value.dtype}"
        return np.array(value, bool if value.dtype == bool else np.float64, subok=False)
    if isinstance(value, tuple) and any(getattr(each, "ndim", isinstance(each, (list, tuple))) for each in value):
        return tuple(plain(each) for each in value)
    if isinstance(value, (list, tuple, np.ndarray)):
        parts = [plain(each) for each in value]
        alike = len({each.shape if isinstance(each, np.ndarray) else None for each in parts}) == 1
        return np.array(parts) if parts and alike and isinstance(parts[0], np.ndarray) else tuple(parts) or np.zeros(0)
    if isinstance(value, (bool, np.bool_)):
        return np.array(bool(value))
    if isinstance(getattr(value, "data", None), (int, float)):  # a scalar with a gradient
        return np.array(float(value.data))
    try:
        return np.array(float(value))
    except (TypeError, ValueError):
        return f"an object of the type {type(value).__name__}"


def agree(first: Any, second: Any, digits: float) -> bool:
    """Whether two plain values are equal up to rounding. NaN equals NaN. digits: the relative and absolute limit."""
    if isinstance(first, np.ndarray) and isinstance(second, np.ndarray):
        if first.shape != second.shape or (first.dtype == bool) != (second.dtype == bool):
            return False
        return bool(np.allclose(first, second, rtol=digits, atol=digits, equal_nan=True))
    if isinstance(first, tuple) and isinstance(second, tuple):
        first, second = dict(enumerate(first)), dict(enumerate(second))
    if isinstance(first, dict) and isinstance(second, dict):
        return first.keys() == second.keys() and all(agree(first[name], second[name], digits) for name in first)
    return type(first) is type(second) and bool(first == second)


def single(value: Any) -> bool:
    """Whether a value that a function returned has numbers of 32 bits."""
    if isinstance(value, Mapping):
        return any(map(single, value.values()))
    if isinstance(value, (list, tuple)):
        return any(map(single, value))
    return str(getattr(value, "dtype", "")).removeprefix("torch.") == "float32"


def difference(first: Any, second: Any, digits: float) -> str:
    """Two plain values that look the same in print and are not: how far apart they are. Otherwise an empty text."""
    if not (isinstance(first, np.ndarray) and isinstance(second, np.ndarray) and agree(first, second, digits)):
        return ""
    apart = np.nanmax(np.abs(first - second), initial=0.0)
    return f"they differ by up to {apart:.1g}: is something computed in float32, or a small number added?"


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
        if value.size == 0 and value.ndim > 1:
            return f"an empty array of the shape {value.shape}"
        if value.size > MOST:
            first = ", ".join(_digits(each) for each in value.flat[:4])
            return f"an array of the shape {value.shape}: {first}, …"
        return np.array2string(value, separator=", ", formatter={"float_kind": _digits}, max_line_width=100)  # type: ignore[arg-type]
    if isinstance(value, tuple):
        return f"({', '.join(shown(each) for each in value)})"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name}: {shown(each)}" for name, each in value.items()) + "}"
    return "None" if value is None else str(value)


def _digits(number: float) -> str:
    return f"{number:.5g}"
