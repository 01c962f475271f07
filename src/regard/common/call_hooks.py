"""Observers of attention calls, and what takes a call before an engine does."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

from .public import Function

Watcher = Callable[[str, Callable[..., Any], tuple, dict[str, Any]], Any]

# The newest is called with (label, function, args, kwargs) instead of the function, and makes the call itself.
watchers: list[Watcher] = []


def watched(label: str) -> Callable[[Function], Function]:
    """Decorates a function of attention: its calls go to the newest observer, or appear as a range named `label` with
    the shapes in a torch profile.

    Without an observer it costs a few look-ups of attributes. Every consumer of torch's ranges receives the range:
    `torch.profiler`, and NVTX under `torch.autograd.profiler.emit_nvtx`.
    """

    def decorate(function: Function) -> Function:
        @functools.wraps(function)
        def call(*args, **kwargs):
            if watchers:
                return watchers[-1](label, function, args, kwargs)
            torch = torch_if_imported()
            if torch is None or not torch.autograd.profiler._is_profiler_enabled:
                return function(*args, **kwargs)
            with torch.autograd.profiler.record_function(f"{label} {shapes(*args, *kwargs.values())}"):
                return function(*args, **kwargs)

        return call  # type: ignore[return-value]

    return decorate


def shapes(*given) -> str:
    """The sizes of the first three arrays: of q, k and v."""
    found = [f"({', '.join(map(str, value.shape))})" for value in given if getattr(value, "ndim", 0) > 1]
    return " ".join(found[:3])


_torch: Any = None


def torch_if_imported() -> Any:
    """torch, or None until it is imported completely: another thread may be importing it.

    torch.compile looks at every entry of a dict that a program reads, and other threads may add to sys.modules
    meanwhile: so programs read the module from here.
    """
    global _torch
    if _torch is None:
        module = sys.modules.get("torch")
        if module is not None and not getattr(module.__spec__, "_initializing", False):
            _torch = module
    return _torch


def intercepted(tensor) -> bool:
    """Whether something looks at the operators of a call with this tensor: torch.compile, torch.export, torch.func,
    forward-mode differentiation, torch.jit.trace, a dispatch mode such as make_fx, or the tensor itself, because it is
    fake.
    """
    torch = torch_if_imported()
    return (
        torch is not None
        and isinstance(tensor, torch.Tensor)
        and (
            torch.compiler.is_dynamo_compiling()
            or torch._C._are_functorch_transforms_active()
            or torch._C._len_torch_dispatch_stack() > 0
            or torch._C._is_tracing()
            or (torch.autograd.forward_ad._current_level >= 0 and torch._C._is_fwd_grad_enabled())
            or type(tensor).__torch_dispatch__ is not torch._C._disabled_torch_dispatch_impl
        )
    )


def compiling() -> bool:
    """Whether torch.compile is tracing this code."""
    torch = torch_if_imported()
    return torch is not None and torch.compiler.is_dynamo_compiling()


def exporting_to_onnx() -> bool:
    """Whether torch.onnx.export traces this code for a model of ONNX's standard operators (`dynamo=True`)."""
    torch = torch_if_imported()
    return torch.onnx.is_in_onnx_export() and not torch.jit.is_tracing()


exporting_to_onnx._dynamo_marked_constant = True  # type: ignore[attr-defined] # torch.compile calls it while it traces
