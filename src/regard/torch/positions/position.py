"""`Position`, the base class of position encodings: three hooks in a model, which change nothing by default."""

from __future__ import annotations

import torch

from ...common.errors import refuse
from ...common.text.keywords import known_arguments
from ...language.expr import Expr


@known_arguments
class Position(torch.nn.Module):
    """Base class of position encodings; a subclass overrides one of `embed`, `rotate` and `score`.

    Models call `embed` once before the first layer, `rotate` on the queries and keys of every layer, and `score` once
    per layer. Each returns its input unchanged by default.

    Examples:
        >>> import torch
        >>> from regard.torch.positions import Position
        >>> x = torch.zeros(1, 3, 4)
        >>> Position().embed(x, torch.arange(3)) is x
        True
    """

    def __init__(self) -> None:
        super().__init__()

    def embed(self, x: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """Adds positions to the token embeddings before the first layer.

        Args:
            x: (B, n, d_model) token embeddings.
            positions: (n,) or (B, n) integers, the positions of the tokens in their sequence.

        Returns:
            (B, n, d_model); here `x` itself.
        """
        return x

    def rotate(self, x: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """Applies positions to the queries or keys of one layer.

        Args:
            x: (B, heads, n, depth) queries or keys.
            positions: (n,) or (B, n) integers, the positions of the rows in their sequence.

        Returns:
            (B, heads, n, depth); here `x` itself.
        """
        return x

    def score(self, logit: Expr) -> Expr:
        """Builds the score expression of one layer.

        Args:
            logit: the score so far.

        Returns:
            The score with positions; here `logit` itself.
        """
        return logit


def fitting(where: str, x: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    """The positions if they are integers (n,) or (B, n) for x (B, …, n, width); raises `Refused` otherwise."""
    sizes = positions.shape
    fits = sizes[-1:] == x.shape[-2:-1] and (len(sizes) == 1 or (len(sizes) == 2 and sizes[0] in (1, x.shape[0])))
    if fits and not (positions.is_floating_point() or positions.is_complex() or positions.dtype == torch.bool):
        return positions
    raise refuse(
        where,
        "positions do not fit x",
        f"{positions.dtype} {tuple(sizes)}",
        f"integers ({x.shape[-2]},) or ({x.shape[0]}, {x.shape[-2]}), for x {tuple(x.shape)}",
        "pass torch.arange(n), or one row of positions for each batch entry",
    )
