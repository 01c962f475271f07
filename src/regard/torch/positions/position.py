"""Where tokens stand: the three places at which a model asks, and what a kind of position answers unless it says
otherwise.
"""

from __future__ import annotations

import torch

from ...common.errors import refuse
from ...language.expr import Expr

__all__ = ["Position", "fitting"]


class Position(torch.nn.Module):
    """A way to tell attention where tokens stand. A kind answers one of the three questions; the others stay as they
    are.

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


def fitting(where: str, x: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    """The positions, if they are whole numbers and as many as x (B, …, n, width) has rows."""
    sizes = positions.shape
    fits = sizes[-1:] == x.shape[-2:-1] and (len(sizes) == 1 or (len(sizes) == 2 and sizes[0] in (1, x.shape[0])))
    if fits and not (positions.is_floating_point() or positions.is_complex() or positions.dtype == torch.bool):
        return positions
    wanted = f"whole numbers ({x.shape[-2]},) or ({x.shape[0]}, {x.shape[-2]}), for x {tuple(x.shape)}"
    raise refuse(
        where,
        "positions do not fit x",
        given=f"{positions.dtype} {tuple(sizes)}",
        expected=wanted,
        fix="pass torch.arange(n), or one row of positions for each entry of the batch",
    )
