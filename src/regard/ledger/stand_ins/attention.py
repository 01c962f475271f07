"""Attention calls of a model whose tensors have no data: shapes and rules are noted, and nothing is computed.

Two functions are registered with transformers under one name, as for every attention implementation: the attention
and its mask. The attention saves for the backward pass what a streaming attention saves: q, k, v, the output, and one
number per row.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import _disable_current_modes

from ...common.call_hooks import without_data
from ...language.callables import as_mask
from ...language.expr import Expr
from ...language.masks import causal
from ...torch.hf.lazy_mask import LazyMask, lazy_mask

NAME = "regard-ledger"
_note: ContextVar[Callable[[AttentionCall, torch.nn.Module | None], None] | None] = ContextVar("note", default=None)


@dataclass(frozen=True)
class AttentionCall:
    """One call. batch, heads H, key_heads G, rows Q, keys K, depth D, value_depth E · rule: the mask, None for every
    pair · start: the position of the first row · tensor: whether the mask is an array, which has no values here ·
    itemsize: bytes of a number · window: how many keys back the layer looks, where it says so ·
    cached: keys that the model's cache keeps, where `rule` is not the model's own.
    """

    batch: int
    heads: int
    key_heads: int
    rows: int
    keys: int
    depth: int
    value_depth: int
    rule: Expr | None
    start: int = 0
    tensor: bool = False
    itemsize: int = 4
    window: int | None = None
    cached: int | None = None

    @property
    def moved(self) -> int:
        """Bytes of q, k, v and the output, each once."""
        rows = self.heads * self.rows * (self.depth + self.value_depth)
        keys = self.key_heads * self.keys * (self.depth + self.value_depth)
        return self.batch * self.itemsize * (rows + keys)


def register() -> None:
    """Registers both functions with transformers; calling it again changes nothing."""
    from transformers import AttentionInterface, AttentionMaskInterface

    AttentionInterface.register(NAME, _attend)
    AttentionMaskInterface.register(NAME, _mask)


@contextmanager
def noted(note: Callable[[AttentionCall, torch.nn.Module | None], None]) -> Iterator[None]:
    """Inside, calls by transformers' interface (with the module that makes them), torch's function and regard's own are
    given to `note`, and their results have no values.
    """
    token, own = _note.set(note), without_data.set(_own)
    try:
        with _Sdpa():
            yield
    finally:
        _note.reset(token)
        without_data.reset(own)


def _answer(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    rule: Expr | None,
    *,
    start: int = 0,
    tensor: bool = False,
    window: int | None = None,
    module: torch.nn.Module | None = None,
) -> torch.Tensor:
    """(…, H, Q, D), (…, G, K, D), (…, G, K, E) -> (…, H, Q, E) without values, of a call that is noted."""
    q, k, v = (
        each.reshape(-1, *each.shape[-3:]) if each.ndim > 3 else each.unsqueeze(0) for each in (query, key, value)
    )
    batch = max(q.shape[0], k.shape[0])
    H, Q, D = q.shape[1:]
    G, K, E = v.shape[1:]
    note = _note.get()
    if note is not None:
        note(AttentionCall(batch, H, G, Q, K, D, E, rule, start, tensor, q.element_size(), window), module)
    out = _Streaming.apply(q, k, v)
    return out if query.ndim == 4 else out.reshape(*query.shape[:-1], E)


def _attend(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: LazyMask | torch.Tensor | None = None,
    *,
    is_causal: bool | None = None,
    sliding_window: int | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """transformers' attention function: (B, H, Q, D), (B, G, K, D), (B, G, K, E) -> (B, Q, H, E), without values."""
    rule, start, tensor = None, 0, False
    if isinstance(attention_mask, LazyMask):
        rule, start = attention_mask.rule, attention_mask.query_start
    elif attention_mask is not None:
        tensor = True
    elif query.shape[2] > 1 and (getattr(module, "is_causal", False) if is_causal is None else is_causal):
        rule = causal()  # as everywhere in transformers: a causal module without a mask
    out = _answer(query, key, value, rule, start=start, tensor=tensor, window=sliding_window, module=module)
    return out.transpose(1, 2), None


class _Streaming(torch.autograd.Function):
    """What a streaming attention saves, and the shapes of its gradients."""

    @staticmethod
    def forward(ctx: Any, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        batch = max(q.shape[0], k.shape[0])
        out = q.new_zeros(batch, q.shape[2], q.shape[1], v.shape[3]).transpose(1, 2)
        lse = q.new_zeros(q.shape[:3], dtype=torch.float32)
        ctx.save_for_backward(q, k, v, out, lse)
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, ...]:
        q, k, v, _, _ = ctx.saved_tensors
        return tuple(torch.zeros_like(each) for each in (q, k, v))


def _mask(*args: Any, mask_function: Any = None, attention_mask: Any = None, **kwargs: Any) -> LazyMask:
    """The mask as an expression. No padding is passed in the ledger: a mask that a model makes itself is all true."""
    if isinstance(attention_mask, torch.Tensor) and attention_mask.is_meta:
        attention_mask = None
    with torch.device("cpu"), _disable_current_modes():  # positions have values, and nothing is counted
        if mask_function is not None:
            mask_function = _readable(mask_function)
        return lazy_mask(*args, mask_function=mask_function, attention_mask=attention_mask, **kwargs)


# What tensors of transformers' mask functions say about text without padding, images and packed sequences.
VALUES = {"padding_mask": True, "block_sequence_ids": -1}


def _readable(function: Any) -> Any:
    """The mask function, with values for its tensors that have none here."""
    if not isinstance(function, types.FunctionType) or not function.__closure__:
        return function
    held = dict(zip(function.__code__.co_freevars, (each.cell_contents for each in function.__closure__), strict=True))
    meta = [name for name, each in held.items() if isinstance(each, torch.Tensor) and each.is_meta]
    if meta and function.__qualname__.startswith("packed_sequence_mask_function"):
        return lambda batch, head, query, key: query >= 0  # each row is one sequence
    if meta and function.__qualname__.startswith("chunked_overlay"):
        size = held["chunk_size"]
        return lambda batch, head, query, key: key // size == query // size  # no padding comes before
    if meta and function.__qualname__.startswith("remap_positions_for_packed_sequence"):
        return _readable(held["mask_function"])
    cells = []
    for name, each in held.items():
        if name in meta and name in VALUES:
            each = torch.full(each.shape, VALUES[name], dtype=each.dtype)
        elif isinstance(each, tuple):
            each = tuple(map(_readable, each))
        else:
            each = _readable(each)
        cells.append(types.CellType(each))
    return types.FunctionType(
        function.__code__, function.__globals__, function.__name__, function.__defaults__, tuple(cells)
    )


FUNCTION = torch.nn.functional.scaled_dot_product_attention


class _Sdpa(TorchFunctionMode):
    """Inside the mode, torch's attention is noted and gives an output without values."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return (_sdpa if function is FUNCTION else function)(*args, **(kwargs or {}))


def _sdpa(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    **kwargs: Any,
) -> torch.Tensor:
    """torch's function; is_causal counts keys from the first row."""
    return _answer(query, key, value, causal() if is_causal else None, tensor=attn_mask is not None)


def _own(q: Any, k: Any, v: Any, arguments: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """regard's function on tensors without data."""
    given = arguments.query_start
    start = k.shape[-2] - q.shape[-2] if given is None else int(np.ravel(np.asarray(given))[0])
    out = _answer(q, k, v, as_mask(arguments.mask), start=start)
    return out, q.new_zeros(q.shape[:-1], dtype=torch.float32)
