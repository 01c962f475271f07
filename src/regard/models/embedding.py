"""Token and position embeddings: the first layer of every model that reads text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from ..common.errors import Reason
from ..torch.positions import ALiBi, Learned, Position, Rotary, Sinusoidal
from .config import TextConfig


class Embedding(nn.Module):
    """Embeds tokens, and adds their positions if they are learned or sinusoidal.

    Args:
        config: the configuration of the model.
        std: standard deviation of the initial weights.

    Examples:
        >>> embedding = Embedding(TextConfig(vocabulary=256, d_model=32), std=0.5)
        >>> embedding(torch.zeros(2, 5, dtype=torch.long), torch.arange(5)).shape
        torch.Size([2, 5, 32])
    """

    def __init__(self, config: TextConfig, std: float):
        super().__init__()
        self.tokens = nn.Embedding(config.vocabulary, config.d_model)
        self.places = added_positions(config)
        self.dropout = nn.Dropout(config.dropout)
        for weight in (self.tokens.weight, *self.places.parameters()):
            nn.init.normal_(weight, std=std)

    def forward(self, tokens: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
        """Embeds tokens (B, n) at positions `places` (n,) or (B, n) -> (B, n, d_model)."""
        return self.dropout(self.places.embed(self.tokens(tokens), places))


def added_positions(config: TextConfig) -> Position:
    """The position encoding that is added to the token embeddings."""
    if config.positions == "learned":
        return Learned(config.context, config.d_model)
    return Sinusoidal(config.d_model) if config.positions == "sinusoidal" else Position()


def attention_positions(config: TextConfig) -> Position | None:
    """The position encoding that is applied in the attention of every layer, or None."""
    if config.positions == "rotary":
        return Rotary(config.d_model // config.heads, base=config.rotary_base)
    return ALiBi(config.heads) if config.positions == "alibi" else None


def token_positions(
    tokens: torch.Tensor, cache: list[Any] | None = None, rows: Sequence[int] | np.ndarray | torch.Tensor | None = None
) -> torch.Tensor:
    """Positions of tokens (B, n): (n,) counted from 0, or (B, n) counted from the lengths of a cache.

    rows (B,): number of real tokens of each sequence; the padding after them gets the position of the last one.
    """
    offsets = torch.arange(tokens.shape[1], device=tokens.device)
    if cache is None:
        return offsets
    if rows is not None:
        offsets = torch.minimum(offsets, torch.as_tensor(rows, device=tokens.device)[:, None] - 1).clamp(min=0)
    return torch.as_tensor(cache[0].lengths, device=tokens.device)[:, None] + offsets


def token_problems(tokens: torch.Tensor) -> list[Reason]:
    """What is wrong with a batch of tokens: a list with one reason, or an empty list."""
    if tokens.ndim == 2 and tokens.dtype in (torch.int64, torch.int32):
        return []
    return [
        Reason(
            "tokens have the wrong dtype or shape",
            f"{tokens.dtype} {tuple(tokens.shape)}",
            "int64 or int32, (B, n)",
            "convert them with tokens.long(); pass a single sequence as tokens[None]",
        )
    ]
