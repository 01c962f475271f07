"""What several layers share: checks of their sizes, heads, a norm, the seed of dropout, the weights as a matrix."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch.nn.functional import rms_norm

from ...common.errors import Reason, Refused
from ...language.analysis import evaluate
from ...language.expr import Expr
from ...language.masks import count

__all__ = ["Checks", "RMSNorm", "allowed_pairs", "dropped", "join_heads", "split_heads", "weights"]


class Checks:
    """The reasons why `where` cannot be made or called, collected as they are found and refused together."""

    def __init__(self, where: str):
        self.where = where
        self.reasons: list[Reason] = []

    def size(self, name: str, value, least: int = 1) -> int:
        """A whole number of `least` or more; anything else is a reason, and counts as `least` for the checks that
        follow.
        """
        try:
            return count(value, self.where, name, least)
        except Refused as refused:
            self.reasons += refused.reasons
            return least

    def rate(self, name: str, value) -> float:
        """A share of the weights that fall out: from 0 to below 1."""
        holds = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1
        self.need(
            holds,
            f"{name} is not a share of the weights",
            given=f"{name}={value!r}",
            expected="a number from 0 to below 1",
            fix="leave it out for no dropout",
        )
        return float(value) if holds else 0.0

    def need(self, holds: bool, what: str, *, given: str, expected: str, fix: str) -> None:
        """A reason, unless it holds."""
        if not holds:
            self.reasons.append(Reason(what, given=given, expected=expected, fix=fix))

    def done(self) -> None:
        """Refuse, if there is a reason."""
        if self.reasons:
            raise Refused(self.where, self.reasons)


def split_heads(x: torch.Tensor, heads: int) -> torch.Tensor:
    """(…, n, heads · depth) as (…, heads, n, depth), a view.

    >>> split_heads(torch.zeros(2, 5, 12), 3).shape
    torch.Size([2, 3, 5, 4])
    """
    return x.unflatten(-1, (heads, -1)).transpose(-3, -2)


def join_heads(x: torch.Tensor) -> torch.Tensor:
    """(…, heads, n, depth) as (…, n, heads · depth): what `split_heads` took apart.

    >>> join_heads(torch.zeros(2, 3, 5, 4)).shape
    torch.Size([2, 5, 12])
    """
    return x.transpose(-3, -2).flatten(-2)


class RMSNorm(torch.nn.RMSNorm):
    """x / √(mean x² + eps) · weight, as torch has it; x may be in 16 bits (autocast) where the weight is not.

    Source: Zhang and Sennrich 2019.

    >>> RMSNorm(2, eps=0.0)(torch.tensor([3.0, 4.0], dtype=torch.bfloat16)).dtype
    torch.bfloat16
    """

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return rms_norm(x, tuple(self.normalized_shape), self.weight.to(x.dtype), self.eps)


def dropped(rate: float, training: bool) -> dict:
    """The arguments `dropout` and `seed` of attention, or none of them outside of training. The seed is drawn from
    torch's generator, so that manual_seed and checkpointing repeat it.

    >>> dropped(0.1, training=False)
    {}
    """
    return {"dropout": rate, "seed": torch.randint(2**62, ())} if training and rate else {}


def weights(
    q: torch.Tensor, k: torch.Tensor, allowed: torch.Tensor | None, added: torch.Tensor | None = None
) -> torch.Tensor:
    """All weights at once, with gradients, as torch computes them: what a layer gives to those who ask for its weights.

    P = softmax over the allowed keys of q kᵀ / √D + added; 0 for a row that may attend nothing.

    q (…, Q, D) · k (…, K, D) · allowed, added: truth values and floats that broadcast to (…, Q, K), a key of −inf being
    one that is not allowed -> (…, Q, K). Memory grows with Q·K, which is why a layer computes its output elsewhere.

    >>> weights(torch.zeros(1, 2, 4), torch.zeros(1, 2, 4), torch.tensor([[True, False], [False, False]])).tolist()
    [[[1.0, 0.0], [0.0, 0.0]]]
    """
    logits = (q / math.sqrt(q.shape[-1])) @ k.mT
    logits = logits if added is None else logits + added
    if allowed is None:
        return logits.softmax(-1)
    # The softmax of an empty row is NaN; neither its weights nor its gradients get past the two fills.
    empty = ~allowed.any(-1, keepdim=True)
    return logits.masked_fill(~allowed, -math.inf).softmax(-1).masked_fill(empty, 0)


def allowed_pairs(mask: Expr, shape: tuple[int, int, int, int], query_start: int, device) -> torch.Tensor:
    """The truth of a mask, as booleans that broadcast to shape (B, H, Q, K)."""
    B, H, Q, K = (np.arange(size) for size in shape)
    places = {"batch": B[:, None, None, None], "head": H[:, None, None], "query": query_start + Q[:, None], "key": K}
    return torch.from_numpy(np.array(evaluate(mask, places), bool)).to(device)
