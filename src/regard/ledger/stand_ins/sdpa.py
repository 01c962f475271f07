"""Calls of torch's scaled_dot_product_attention in a model without data: noted like those of the interface."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from ...language.masks import causal
from .attention import AttentionCall, streaming

FUNCTION = torch.nn.functional.scaled_dot_product_attention


class Sdpa(TorchFunctionMode):
    """Inside the mode, each call is noted and gives an output without values. note: receives the calls."""

    def __init__(self, note: Callable[[AttentionCall], None]):
        super().__init__()
        self.note = note

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function is not FUNCTION:
            return function(*args, **(kwargs or {}))
        return self._attend(*args, **(kwargs or {}))

    def _attend(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attn_mask: torch.Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        **kwargs: Any,
    ) -> torch.Tensor:
        """(…, H, Q, D), (…, G, K, D), (…, G, K, E) -> (…, H, Q, E); is_causal counts keys from the first row."""
        q, k, v = (
            each.reshape(-1, *each.shape[-3:]) if each.ndim > 3 else each.unsqueeze(0) for each in (query, key, value)
        )
        B, H, Q, D = q.shape
        G, K, E = v.shape[1:]
        rule = causal() if is_causal else None
        self.note(AttentionCall(B, H, G, Q, K, D, E, rule, 0, attn_mask is not None, q.element_size()))
        return streaming(q, k, v).reshape(*query.shape[:-1], E)
