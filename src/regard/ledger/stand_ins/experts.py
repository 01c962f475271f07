"""Experts of a model whose tensors have no data: every chosen pair of token and expert is multiplied once.

Which expert a token meets is unknown without values, and does not matter: all have one size. So each row is repeated as
often as experts are chosen for it, and is multiplied by the first expert's matrices.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from .attention import NAME


def register() -> None:
    """Registers the function with transformers."""
    from transformers.integrations.moe import ALL_EXPERTS_FUNCTIONS

    ALL_EXPERTS_FUNCTIONS.register(NAME, _experts)


def set_on(config: Any, name: str | None = NAME) -> None:
    """Sets it in a configuration and in its parts, for the models that choose their experts' function. name: another
    implementation, or None for the usual one.
    """
    config._experts_implementation = name
    for each in getattr(config, "sub_configs", None) or ():
        part = getattr(config, each, None)
        if part is not None:
            set_on(part, name)


def _experts(
    self: Any, hidden_states: torch.Tensor, top_k_index: torch.Tensor, top_k_weights: torch.Tensor
) -> torch.Tensor:
    """(tokens, d), (tokens, k), (tokens, k) -> (tokens, d)."""
    chosen = top_k_index.shape[-1]
    rows = hidden_states.repeat_interleave(chosen, dim=0)
    first = "gate_up_proj" if self.has_gate else "up_proj"
    inner = self._apply_gate(_product(self, rows, first)) if self.has_gate else self.act_fn(_product(self, rows, first))
    out = _product(self, inner, "down_proj")
    if self.has_post_expert_norm:
        out = self.post_expert_norm(out)
    out = out * top_k_weights.reshape(-1, 1)
    return out.view(*hidden_states.shape[:-1], chosen, -1).sum(-2).to(hidden_states.dtype)


def _product(self: Any, rows: torch.Tensor, name: str) -> torch.Tensor:
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
