"""Heads: several small rows side by side in one row of a projection."""

from __future__ import annotations

import torch

__all__ = ["join_heads", "split_heads"]


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
