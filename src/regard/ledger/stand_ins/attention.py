"""Attention calls of a model whose tensors have no data: shapes and rules are noted, and nothing is computed.

Two functions are registered with transformers under one name, as for every attention implementation: the attention
and its mask. The attention saves for the backward pass what a streaming attention saves: q, k, v, the output, and one
number per row.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.utils._python_dispatch import _disable_current_modes

from ...common.call_hooks import watched
from ...language.callables import as_mask
from ...language.expr import Expr
from ...language.masks import causal
from ...observe.observed_call import HF, REGARD, SDPA, ObservedCall
from ...observe.observer import Observer
from ...torch.hf.lazy_mask import LazyMask, lazy_mask

NAME = "regard-ledger"


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


class StandIn(Observer):
    """Inside `watching()`, the attention calls of a model, by transformers' interface, torch's function or regard's
    own, are given to `note` with the module that transformers names, and their results have no values.
    """

    def __init__(self, model: torch.nn.Module, note: Callable[[AttentionCall, torch.nn.Module | None], None]):
        super().__init__(model)
        self.note = note

    def compute(self, call: ObservedCall, function: Callable[[], Any]) -> Any:
        if call.kind not in RULES:
            return function()
        q, k, v = (
            each.reshape(-1, *each.shape[-3:]) if each.ndim > 3 else each[None] for each in (call.q, call.k, call.v)
        )
        rule, start, tensor = RULES[call.kind](call)
        (_, H, Q, D), (_, G, K, E) = q.shape, v.shape
        batch, window = max(q.shape[0], k.shape[0]), call.given.get("sliding_window")
        noted = AttentionCall(batch, H, G, Q, K, D, E, rule, start, tensor, q.element_size(), window)
        self.note(noted, call.given.get("module"))
        if call.kind == HF:
            return function()
        out = _Streaming.apply(q, k, v)
        out = out if call.q.ndim == 4 else out.reshape(*call.q.shape[:-1], E)
        return out if call.kind == SDPA else (out, out.new_zeros(out.shape[:-1], dtype=torch.float32))

    def called(self, call: ObservedCall) -> None:
        call.let_go()


@watched(HF)
def _attend(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: LazyMask | torch.Tensor | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """transformers' attention function: (B, H, Q, D), (B, G, K, D), (B, G, K, E) -> (B, Q, H, E), without values."""
    return _Streaming.apply(query, key, value).transpose(1, 2), None


def _of_transformers(call: ObservedCall) -> tuple[Expr | None, int, bool]:
    """(rule, position of the first row, whether the mask is a tensor)."""
    mask, causes = call.given.get("attention_mask"), call.given.get("is_causal")
    if isinstance(mask, LazyMask):
        return mask.rule, mask.query_start, False
    if mask is not None:
        return None, 0, True
    # As everywhere in transformers: a causal module without a mask.
    causes = getattr(call.given["module"], "is_causal", False) if causes is None else causes
    return (causal() if causes and call.q.shape[2] > 1 else None), 0, False


def _of_torch(call: ObservedCall) -> tuple[Expr | None, int, bool]:
    """The same of torch's function, whose is_causal counts keys from the first row."""
    return (causal() if call.given.get("is_causal") else None), 0, call.given.get("attn_mask") is not None


def _of_regard(call: ObservedCall) -> tuple[Expr | None, int, bool]:
    """The same of regard's function."""
    start = call.given["query_start"]
    start = call.k.shape[-2] - call.q.shape[-2] if start is None else int(np.ravel(np.asarray(start))[0])
    return as_mask(call.given["mask"]), start, False


RULES = {HF: _of_transformers, SDPA: _of_torch, REGARD: _of_regard}


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
