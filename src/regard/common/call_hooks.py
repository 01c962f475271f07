"""Who is told of attention calls: profilers and traces while they watch, and torch's profiler by named ranges."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any, TypeVar

__all__ = ["Watcher", "watched", "watchers"]

Function = TypeVar("Function", bound=Callable[..., Any])
Watcher = Callable[[str, Callable[..., Any], tuple, dict[str, Any]], Any]

# Each is called with (label, function, args, kwargs) instead of the function; the newest is told and passes the call
# on.
watchers: list[Watcher] = []


def watched(label: str) -> Callable[[Function], Function]:
    """A function of attention whose calls are seen: by who watches, or as a range named `label` and the shapes in a
    torch profile.

    Where nobody watches, a call costs two looks more. A range is seen by whatever reads torch's: `torch.profiler`, and
    NVTX under `torch.autograd.profiler.emit_nvtx`.
    """

    def seen(function: Function) -> Function:
        @functools.wraps(function)
        def call(*args, **kwargs):
            if watchers:
                return watchers[-1](label, function, args, kwargs)
            profiler = sys.modules.get("torch.autograd.profiler")  # absent until somebody has imported torch
            if profiler is None or not profiler._is_profiler_enabled:
                return function(*args, **kwargs)
            with profiler.record_function(f"{label} {shapes(*args, *kwargs.values())}"):
                return function(*args, **kwargs)

        return call  # type: ignore[return-value]

    return seen


def shapes(*given) -> str:
    """The sizes of the first three arrays: of q, k and v."""
    found = [f"({', '.join(map(str, value.shape))})" for value in given if getattr(value, "ndim", 0) > 1]
    return " ".join(found[:3])
