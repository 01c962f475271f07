"""Experts of a model whose tensors have no data: every chosen pair of token and expert is multiplied once.

Which expert a token meets is unknown without values, and does not matter: all have one size. So each row is repeated as
often as experts are chosen for it, and is multiplied by the first expert's matrices.
"""

from __future__ import annotations

from typing import Any

import torch

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
