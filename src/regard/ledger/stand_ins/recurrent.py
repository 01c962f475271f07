"""Recurrent layers of a model whose tensors have no data: their states are noted, and nothing is computed.

transformers' files call functions for convolutions over time and for recurrences, such as `mamba2_chunk_scan`. Fast
kernels compute them, or slow code in torch where these are missing. The slow code loops over tokens, or pads chunks, so
what it does says nothing about the model. During a pass these functions are replaced by others that only make results
of the right shapes, and save for the backward pass what a kernel saves: its inputs, since it forms the states anew.

The operations of a recurrence are those of its definition. Each time a state of S numbers is read by a product, and
each time a product is added to it, 2 · S operations per token; its decay is elementwise, and not counted.

  S ← a·S + b·x,  y = c·S            one sum, one reading    4 · S    Gu & Dao 2023, equation 2
  S ← a·S + k·β·(v − k·a·S),  y = q·S    one sum, two readings   6 · S    Yang et al. 2024, equation 10
"""

from __future__ import annotations

import math
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F


@dataclass(frozen=True)
class Recurrence:
    """A recurrence over some tokens. flops: forward · moved: bytes that it reads and writes."""

    flops: int
    moved: int


@dataclass
class Noted:
    """What ran in a pass, with the path of the module that ran it. convolutions: (weight, input, output)."""

    path: Callable[[], str] = lambda: ""
    states: list[tuple[str, Recurrence]] = field(default_factory=list)
    convolutions: list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]] = field(default_factory=list)

    def clear(self) -> None:
        """Forgets what ran."""
        self.states.clear()
        self.convolutions.clear()

    def run(
        self,
        shape: tuple[int, ...],
        dtype: torch.dtype,
        given: tuple[Any, ...],
        *,
        state: int,
        products: int = 2,
        tokens: int,
    ) -> torch.Tensor:
        """The result of a recurrence over a state of so many numbers, over all sequences, that each token reads or adds
        to by `products` products.
        """
        read = [each for each in given if isinstance(each, torch.Tensor) and each.is_floating_point()]
        out = _Kernel.apply(shape, dtype, *read)
        moved = sum(each.nbytes for each in (*read, out))
        self.states.append((self.path(), Recurrence(2 * state * products * tokens, moved)))
        return out


_noted: ContextVar[Noted | None] = ContextVar("recurrences", default=None)
_lock = threading.Lock()
_replaced: dict[tuple[str, str], list[Any]] = {}  # (module, name): [the function, how many passes run]


@contextmanager
def noted(model: nn.Module, path: Callable[[], str]) -> Iterator[Noted]:
    """Replaces the functions that the model's code calls. path: says which module runs.

    A replaced function asks whether a pass runs in its thread, and is itself otherwise: other threads see no change.
    """
    found = Noted(path)
    places = {
        (where, name)
        for where in {type(module).__module__ for module in model.modules()}
        for name in STAND_INS
        if where.startswith("transformers.") and hasattr(sys.modules.get(where), name)
    }
    token = _noted.set(found)
    with _lock:
        for where, name in places:
            module = sys.modules[where]
            if (where, name) not in _replaced:
                _replaced[where, name] = [getattr(module, name), 0]
                setattr(module, name, _either(getattr(module, name), STAND_INS[name]))
            _replaced[where, name][1] += 1
    try:
        yield found
    finally:
        _noted.reset(token)
        with _lock:
            for where, name in places:
                _replaced[where, name][1] -= 1
                if not _replaced[where, name][1]:
                    setattr(sys.modules[where], name, _replaced.pop((where, name))[0])


def _either(usual: Callable[..., Any], stand_in: Callable[..., Any]) -> Callable[..., Any]:
    def function(*args: Any, **kwargs: Any) -> Any:
        found = _noted.get()
        return usual(*args, **kwargs) if found is None else stand_in(found, *args, **kwargs)

    return function


class _Kernel(torch.autograd.Function):
    """Zeros of a shape; saves its inputs, and gives gradients of their shapes."""

    @staticmethod
    def forward(ctx: Any, shape: tuple[int, ...], dtype: torch.dtype, *given: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(*given)
        return given[0].new_zeros(shape, dtype=dtype)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[Any, ...]:
        return None, None, *(torch.zeros_like(each) for each in ctx.saved_tensors)


def _convolution(
    found: Noted, x: torch.Tensor, weight: torch.Tensor, bias: Any = None, activation: Any = None, **named: Any
) -> torch.Tensor:
    """(B, C, n) with (C, k) -> (B, C, n): each position with the k − 1 before it."""
    out = F.conv1d(F.pad(x, (weight.shape[-1] - 1, 0)).to(weight.dtype), weight.unsqueeze(1), bias, groups=x.shape[1])
    found.convolutions.append((weight, x, out))
    return (F.silu(out) if activation is not None else out).to(x.dtype)


def _convolution_step(found: Noted, x: torch.Tensor, state: torch.Tensor, *more: Any, **named: Any) -> torch.Tensor:
    return _convolution(found, x, *more, **named)


def _fused(found: Noted, *args: Any, **kwargs: Any) -> None:
    """Nothing: the model then takes the parts one by one."""


def _scan(found: Noted, x: torch.Tensor, *more: Any, return_last_state: bool = False, **named: Any) -> Any:
    """Mamba: (B, d, n) and a state of d · N numbers -> (B, d, n). more: dt, A of (d, N), B, C …"""
    last = (*x.shape[:2], more[1].shape[-1])
    given = (x, *more, *named.values())
    out = found.run(x.shape, x.dtype, given, state=math.prod(last), tokens=x.shape[2])
    return (out, x.new_zeros(last)) if return_last_state else out


def _scan_step(found: Noted, state: torch.Tensor, x: torch.Tensor, *more: Any, **named: Any) -> torch.Tensor:
    """One token of Mamba and of Mamba-2: (B, …) and a state (B, …, N) -> (B, …)."""
    return found.run(x.shape, x.dtype, (state, x, *more, *named.values()), state=state.numel(), tokens=1)


def _chunk_scan(found: Noted, x: torch.Tensor, *more: Any, return_final_states: bool = False, **named: Any) -> Any:
    """Mamba-2: (B, n, H, P) and a state of H · P · N numbers -> (B, n, H, P). more: dt, A, B of (B, n, G, N), C …"""
    last = (x.shape[0], *x.shape[2:], more[2].shape[-1])
    given = (x, *more, *named.values())
    out = found.run(x.shape, x.dtype, given, state=math.prod(last), tokens=x.shape[1])
    return (out, x.new_zeros(last, dtype=torch.float32)) if return_final_states else out


def _delta_rule(
    found: Noted,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    *more: Any,
    output_final_state: bool = False,
    **named: Any,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """(B, n, H, dk), values (B, n, H, dv) and a state of H · dk · dv numbers -> (B, n, H, dv), the state."""
    last = (value.shape[0], value.shape[2], key.shape[3], value.shape[3])
    given = (query, key, value, *more, *named.values())
    out = found.run(value.shape, query.dtype, given, state=math.prod(last), products=3, tokens=value.shape[1])
    return out, query.new_zeros(last, dtype=torch.float32) if output_final_state else None


STAND_INS: dict[str, Callable[..., Any]] = {
    "causal_conv1d_fn": _convolution,
    "causal_conv1d_update": _convolution_step,
    "mamba_inner_fn": _fused,
    "mamba2_split_conv1d_scan_combined": _fused,
    "mamba_selective_scan": _scan,
    "mamba_selective_state_update": _scan_step,
    "mamba2_chunk_scan": _chunk_scan,
    "mamba2_selective_state_update": _scan_step,
    "torch_chunk_gated_delta_rule": _delta_rule,
    "torch_recurrent_gated_delta_rule": _delta_rule,
    "chunk_kimi_delta_attention": _delta_rule,
    "recurrent_kimi_delta_attention": _delta_rule,
}
