"""Stand-ins: what runs in place of code that needs values, and makes results of the same shapes without them.

Attention: shapes and rules are noted, and nothing is computed. Two functions are registered with transformers under one
name, as for every attention implementation: the attention and its mask. The attention saves for the backward pass what
a streaming attention saves: q, k, v, the output, and one number per row.

Experts: every chosen pair of token and expert is multiplied once. Which expert a token meets is unknown without values,
and does not matter: all have one size. So each row is repeated as often as experts are chosen for it, and is multiplied
by the first expert's matrices.

Recurrent layers: transformers' files call functions for convolutions over time and for recurrences, such as
`mamba2_chunk_scan`. Fast kernels compute them, or slow code in torch where these are missing. The slow code loops over
tokens, or pads chunks, so what it does says nothing about the model. During a pass these functions are replaced by
others that only make results of the right shapes, and save for the backward pass what a kernel saves: its inputs, since
it forms the states anew.

The operations of a recurrence are those of its definition. Each time a state of S numbers is read by a product, and
each time a product is added to it, 2 · S operations per token; its decay is elementwise, and not counted.

  S ← a·S + b·x,  y = c·S            one sum, one reading    4 · S    Gu & Dao 2023, equation 2
  S ← a·S + k·β·(v − k·a·S),  y = q·S    one sum, two readings   6 · S    Yang et al. 2024, equation 10
"""

from __future__ import annotations

import math
import sys
import threading
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils._python_dispatch import _disable_current_modes

from ..common.call_hooks import watched
from ..language.callables import as_mask
from ..language.expr import Expr
from ..language.masks import causal
from ..observe.observed_call import HF, REGARD, SDPA, ObservedCall
from ..observe.observer import Observer
from ..torch.hf.lazy_mask import LazyMask, lazy_mask

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
    """Registers attention, its mask and experts with transformers; calling it again changes nothing."""
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.integrations.moe import ALL_EXPERTS_FUNCTIONS

    AttentionInterface.register(NAME, _attend)
    AttentionMaskInterface.register(NAME, _mask)
    ALL_EXPERTS_FUNCTIONS.register(NAME, _experts)


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
        out = _Kernel.apply(_streaming, q, k, v)
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
    return _Kernel.apply(_streaming, query, key, value).transpose(1, 2), None


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


def _streaming(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """The output and the lse, which a streaming attention saves with its inputs."""
    out = q.new_zeros(max(q.shape[0], k.shape[0]), q.shape[2], q.shape[1], v.shape[3]).transpose(1, 2)
    return out, out, q.new_zeros(q.shape[:3], dtype=torch.float32)


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


def set_experts(config: Any, name: str | None = NAME) -> None:
    """Sets it in a configuration and in its parts, for the models that choose their experts' function. name: another
    implementation, or None for the usual one.
    """
    config._experts_implementation = name
    for each in getattr(config, "sub_configs", None) or ():
        part = getattr(config, each, None)
        if part is not None:
            set_experts(part, name)


def _experts(
    self: Any, hidden_states: torch.Tensor, top_k_index: torch.Tensor, top_k_weights: torch.Tensor
) -> torch.Tensor:
    """(tokens, d), (tokens, k), (tokens, k) -> (tokens, d)."""
    chosen = top_k_index.shape[-1]
    rows = hidden_states.repeat_interleave(chosen, dim=0)
    first = "gate_up_proj" if self.has_gate else "up_proj"
    inner = (
        self._apply_gate(_expert_product(self, rows, first))
        if self.has_gate
        else self.act_fn(_expert_product(self, rows, first))
    )
    out = _expert_product(self, inner, "down_proj")
    if self.has_post_expert_norm:
        out = self.post_expert_norm(out)
    out = out * top_k_weights.reshape(-1, 1)
    return out.view(*hidden_states.shape[:-1], chosen, -1).sum(-2).to(hidden_states.dtype)


def _expert_product(self: Any, rows: torch.Tensor, name: str) -> torch.Tensor:
    weight = getattr(self, name)[0]
    out = rows @ (weight if self.is_transposed else weight.transpose(0, 1))
    return out + getattr(self, f"{name}_bias")[0] if self.has_bias else out


def replace_routed(model: nn.Module) -> bool:
    """Replaces the functions of such modules in a model. Whether there are any.

    Modules whose parameters belong to experts are given `used`: (how many a token meets, of how many).
    """
    found = [module for module in model.modules() if type(module).__name__ in ROUTED]
    for module in found:
        module.forward = types.MethodType(ROUTED[type(module).__name__], module)
    for module in model.modules():
        if type(module).__name__ == "SwitchTransformersExperts":
            for part in module.modules():
                part.used = (1, module.num_experts)
        elif type(module).__name__ in ("JetMoeMoE", "JetMoeMoA"):
            for part in (module.input_linear, module.output_linear):
                part.used = (module.router.top_k, module.router.num_experts)
    return bool(found)


def _named_experts(self: Any, hidden_states: torch.Tensor, selected: torch.Tensor, weights: torch.Tensor) -> Any:
    """(tokens, d) -> (tokens, d): each token meets one expert, of those that are named expert_0, expert_1, …"""
    return self["expert_0"](hidden_states) * weights.reshape(-1, 1)


def _gating(self: Any, hidden_states: torch.Tensor) -> tuple[Any, ...]:
    """(tokens, d) -> the order of tokens by experts, their gates, and how many each expert has: the first has all."""
    logits = self.layer(hidden_states).float()
    rows = hidden_states.shape[0] * self.top_k
    index = hidden_states.new_zeros(rows, dtype=torch.long)
    gates = logits.topk(self.top_k, dim=1)[0].softmax(dim=1).type_as(hidden_states).flatten()
    return index, index.div(self.top_k, rounding_mode="trunc"), gates, [rows] + [0] * (self.num_experts - 1), logits


def _with_identities(self: Any, hidden_states: torch.Tensor, chosen: torch.Tensor, weights: torch.Tensor) -> Any:
    """(tokens, d) -> (tokens, d), as if no token met one of the experts that change nothing."""
    rows = hidden_states.repeat_interleave(chosen.shape[-1], dim=0)
    gate, up = nn.functional.linear(rows, self.gate_up_proj[0]).chunk(2, dim=-1)
    out = nn.functional.linear(self.act_fn(gate) * up, self.down_proj[0]) * weights.reshape(-1, 1)
    return out.view(*hidden_states.shape[:-1], chosen.shape[-1], -1).sum(-2).to(hidden_states.dtype)


ROUTED: dict[str, Callable[..., Any]] = {
    "SwitchTransformersExperts": _named_experts,
    "JetMoeTopKGating": _gating,
    "LongcatFlashExperts": _with_identities,
}


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
        out = _Kernel.apply(lambda first, *rest: (first.new_zeros(shape, dtype=dtype),), *read)
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
    """The first tensor that `make` returns; saves the inputs and the other tensors, gives gradients of the inputs."""

    @staticmethod
    def forward(ctx: Any, make: Callable[..., tuple[torch.Tensor, ...]], *given: torch.Tensor) -> torch.Tensor:
        out, *more = make(*given)
        ctx.inputs = len(given)
        ctx.save_for_backward(*given, *more)
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[Any, ...]:
        return None, *(torch.zeros_like(each) for each in ctx.saved_tensors[: ctx.inputs])


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
