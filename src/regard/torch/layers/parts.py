"""Helpers that several layers share: argument checks, splitting heads, RMSNorm, dropout seeds, the weight matrix."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch.nn.functional import rms_norm

from ...common.errors import Reason, Refused
from ...language.analysis import evaluate
from ...language.expr import Expr
from ...language.masks import count


class Checks:
    """Collects the problems of a constructor or call named `where`; `done` raises `Refused` with all of them."""

    def __init__(self, where: str):
        self.where = where
        self.reasons: list[Reason] = []

    def size(self, name: str, value, least: int = 1) -> int:
        """The value if it is an integer of `least` or more; otherwise adds a reason and returns `least`."""
        try:
            return count(value, self.where, name, least)
        except Refused as refused:
            self.reasons += refused.reasons
            return least

    def rate(self, name: str, value) -> float:
        """The value as a dropout rate, from 0 to below 1; otherwise adds a reason and returns 0."""
        valid = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1
        self.need(
            valid,
            f"{name} is not a probability below 1",
            given=f"{name}={value!r}",
            expected="a number from 0 to below 1",
            fix="omit it for no dropout",
        )
        return float(value) if valid else 0.0

    def need(self, condition: bool, what: str, *, given: str, expected: str, fix: str) -> None:
        """Adds a reason unless the condition is true."""
        if not condition:
            self.reasons.append(Reason(what, given, expected, fix))

    def done(self) -> None:
        """Raises `Refused` if there are reasons."""
        if self.reasons:
            raise Refused(self.where, self.reasons)


def split_heads(x: torch.Tensor, heads: int) -> torch.Tensor:
    """(…, n, heads · depth) as (…, heads, n, depth), a view.

    >>> split_heads(torch.zeros(2, 5, 12), 3).shape
    torch.Size([2, 3, 5, 4])
    """
    return x.unflatten(-1, (heads, -1)).transpose(-3, -2)


def join_heads(x: torch.Tensor) -> torch.Tensor:
    """(…, heads, n, depth) as (…, n, heads · depth): the inverse of `split_heads`.

    >>> join_heads(torch.zeros(2, 3, 5, 4)).shape
    torch.Size([2, 5, 12])
    """
    return x.transpose(-3, -2).flatten(-2)


class RMSNorm(torch.nn.RMSNorm):
    """x / √(mean x² + eps) · weight, as torch.nn.RMSNorm; x may have 16 bits (autocast) while the weight has 32.

    Source: Zhang and Sennrich 2019.

    >>> RMSNorm(2, eps=0.0)(torch.tensor([3.0, 4.0], dtype=torch.bfloat16)).dtype
    torch.bfloat16
    """

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return rms_norm(x, tuple(self.normalized_shape), self.weight.to(x.dtype), self.eps)


def dropped(rate: float, training: bool) -> dict[str, Any]:
    """The arguments `dropout` and `seed` of attention; empty in eval mode.

    The seed is drawn from torch's generator, so manual_seed and activation checkpointing reproduce it.

    >>> dropped(0.1, training=False)
    {}
    """
    return {"dropout": rate, "seed": torch.randint(2**62, ())} if training and rate else {}


def weights(
    q: torch.Tensor, k: torch.Tensor, allowed: torch.Tensor | None, added: torch.Tensor | None = None
) -> torch.Tensor:
    """The whole weight matrix, computed by torch with gradients, for layers that return their weights.

    P = softmax over the allowed keys of (q kᵀ / √D + added); 0 in fully masked rows.

    q (…, Q, D) · k (…, K, D) · allowed, added: booleans and floats that broadcast to (…, Q, K); a key with −inf in
    `added` must be False in `allowed` -> (…, Q, K). Memory grows with Q·K, so layers do not compute their output here.

    >>> weights(torch.zeros(1, 2, 4), torch.zeros(1, 2, 4), torch.tensor([[True, False], [False, False]])).tolist()
    [[[1.0, 0.0], [0.0, 0.0]]]
    """
    logits = (q / math.sqrt(q.shape[-1])) @ k.mT
    logits = logits if added is None else logits + added
    if allowed is None:
        return logits.softmax(-1)
    # The softmax of a fully masked row is NaN; the second fill sets its weights and their gradients to 0.
    empty = ~allowed.any(-1, keepdim=True)
    return logits.masked_fill(~allowed, -math.inf).softmax(-1).masked_fill(empty, 0)


def allowed_pairs(mask: Expr, shape: tuple[int, int, int, int], query_start: int, device) -> torch.Tensor:
    """A mask expression as booleans that broadcast to shape (B, H, Q, K)."""
    B, H, Q, K = (np.arange(size) for size in shape)
    places = {"batch": B[:, None, None, None], "head": H[:, None, None], "query": query_start + Q[:, None], "key": K}
    return torch.from_numpy(np.array(evaluate(mask, places), bool)).to(device)
