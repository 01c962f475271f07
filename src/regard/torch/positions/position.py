"""Where tokens stand: the three places at which a model asks, and what every kind of position answers unless it says otherwise."""

from __future__ import annotations

import torch

from ...expr import Expr

__all__ = ["Position"]


class Position(torch.nn.Module):
    """A way to tell attention where tokens stand. A kind answers one of the three questions; the others stay as they are.

    positions (n,) or (B, n): whole numbers, the places of the n tokens in their sequence.
    """

    def embed(self, x: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """The tokens x (B, n, d_model) before the first layer, told where they stand."""
        return x

    def rotate(self, x: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """Queries or keys (B, heads, n, depth) of one layer, told where they stand."""
        return x

    def score(self, logit: Expr) -> Expr:
        """The rule for the scores of one layer, made from the rule so far."""
        return logit
