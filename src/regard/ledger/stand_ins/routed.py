"""Experts that a model's own code chooses by values: in a stand-in every token meets as many as the router chooses.

transformers' code for these architectures asks which tokens each expert has, so it cannot run without data. Whether a
stand-in does the operations of the code is confirmed on a small model with data (`confirm`).
"""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import torch
from torch import nn


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
