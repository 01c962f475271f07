"""Whether torch compiles, transforms, traces or intercepts a call, so that it has to be one operator of torch."""

from __future__ import annotations

import sys
from typing import Any

_torch: Any = None


def torch_if_imported() -> Any:
    """torch, or None until it is imported.

    torch.compile looks at every entry of a dict that a program reads, and other threads may add to sys.modules
    meanwhile: so programs read the module from here.
    """
    global _torch
    if _torch is None:
        _torch = sys.modules.get("torch")
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
