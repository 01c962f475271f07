"""Tokens as rows of numbers, told where they stand: how every model that reads text begins."""

from __future__ import annotations

import torch
from torch import nn

from ..common.errors import Reason
from ..torch.positions import ALiBi, Learned, Position, Rotary, Sinusoidal
from .config import TextConfig

__all__ = ["Embedding", "attention_positions", "standing", "unreadable"]


class Embedding(nn.Module):
    """x = tokens[t], and the place of t where positions are added to the rows (learned, sinusoidal).

    std: of fresh weights.

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
        """tokens (B, n), places (n,) or (B, n) -> (B, n, d_model)."""
        return self.dropout(self.places.embed(self.tokens(tokens), places))


def added_positions(config: TextConfig) -> Position:
    """What tells the rows before the first layer where they stand."""
    if config.positions == "learned":
        return Learned(config.context, config.d_model)
    return Sinusoidal(config.d_model) if config.positions == "sinusoidal" else Position()


def attention_positions(config: TextConfig) -> Position | None:
    """What tells the attention of every layer where its rows stand."""
    if config.positions == "rotary":
        return Rotary(config.d_model // config.heads, base=config.rotary_base)
    return ALiBi(config.heads) if config.positions == "alibi" else None


def standing(tokens: torch.Tensor, cache=None, rows=None) -> torch.Tensor:
    """Where tokens (B, n) stand: 0 … n - 1, or (B, n) where they follow what a cache has seen; padding stands at the
    last row.
    """
    ahead = torch.arange(tokens.shape[1], device=tokens.device)
    if cache is None:
        return ahead
    if rows is not None:
        ahead = torch.minimum(ahead, torch.as_tensor(rows, device=tokens.device)[:, None] - 1).clamp(min=0)
    return torch.as_tensor(cache[0].lengths, device=tokens.device)[:, None] + ahead


def unreadable(tokens: torch.Tensor) -> list[Reason]:
    """Why these are not the tokens of a batch of texts; nothing, if they are."""
    if tokens.ndim == 2 and tokens.dtype in (torch.int64, torch.int32):
        return []
    return [
        Reason(
            "these are no tokens",
            given=f"{tokens.dtype} {tuple(tokens.shape)}",
            expected="int64 or int32, (B, n)",
            fix="tokens.long(); one text alone is tokens[None]",
        )
    ]
