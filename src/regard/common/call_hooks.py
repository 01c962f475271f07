"""Observers of attention calls: profilers and traces, and named ranges in torch's own profiler."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

from .types import Function

Watcher = Callable[[str, Callable[..., Any], tuple, dict[str, Any]], Any]

# The newest is called with (label, function, args, kwargs) instead of the function, and makes the call itself.
watchers: list[Watcher] = []


# Called with (q, k, v, arguments) for tensors of the meta device instead of the function; gives the output and lse.
without_data: ContextVar[Callable[..., Any] | None] = ContextVar("calls without data", default=None)


def watched(label: str) -> Callable[[Function], Function]:
    """Decorates a function of attention: its calls go to the newest observer, or appear as a range named `label` with
    the shapes in a torch profile.

    Without an observer the overhead is two attribute checks. Every consumer of torch's ranges receives the range:
    `torch.profiler`, and NVTX under `torch.autograd.profiler.emit_nvtx`.
    """

    def decorate(function: Function) -> Function:
        @functools.wraps(function)
        def call(*args, **kwargs):
            if watchers:
                return watchers[-1](label, function, args, kwargs)
            profiler = sys.modules.get("torch.autograd.profiler")  # absent until torch is imported
            if profiler is None or not profiler._is_profiler_enabled:
                return function(*args, **kwargs)
            with profiler.record_function(f"{label} {shapes(*args, *kwargs.values())}"):
                return function(*args, **kwargs)

        return call  # type: ignore[return-value]

    return decorate


def shapes(*given) -> str:
    """The sizes of the first three arrays: of q, k and v."""
    found = [f"({', '.join(map(str, value.shape))})" for value in given if getattr(value, "ndim", 0) > 1]
    return " ".join(found[:3])
