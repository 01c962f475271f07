"""Sinusoidal positions: sines and cosines of many wavelengths, added to the token embeddings."""

from __future__ import annotations

import torch

from ...common.errors import refuse
from ...common.text.keywords import known_arguments
from .position import Position, fitting


def waves(positions: torch.Tensor, d_model: int) -> torch.Tensor:
    """PE(p, 2i) = sin(p / 10000^(2i/d_model)), PE(p, 2i + 1) = cos of the same angle: (…, n, d_model) in float64.

    >>> waves(torch.tensor([0]), 4).tolist()
    [[0.0, 1.0, 0.0, 1.0]]
    """
    exponents = torch.arange(0, d_model, 2, dtype=torch.float64, device=positions.device) / d_model
    angles = positions[..., None].to(torch.float64) * 10000.0**-exponents
    return torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(-2)[..., :d_model]


@known_arguments
class Sinusoidal(Position):
    """Adds fixed sines and cosines of the position to the token embeddings.

    PE(p, 2i) = sin(p / 10000^(2i/d_model)), PE(p, 2i + 1) = cos(p / 10000^(2i/d_model)).

    They are computed in float64 at each call, so positions may be arbitrarily large without loss of precision.

    Args:
        d_model: the width of the token embeddings.

    Raises:
        Refused: d_model is less than 1.

    Source:
        Vaswani et al. 2017.

    Examples:
        >>> import torch
        >>> from regard.torch.positions import Sinusoidal
        >>> Sinusoidal(4).embed(torch.zeros(1, 1, 4), torch.tensor([10**6])).shape
        torch.Size([1, 1, 4])
    """

    def __init__(self, d_model: int):
        super().__init__()
        if d_model < 1:
            raise refuse(
                "Sinusoidal", "d_model is too small", f"{d_model}", "at least 1", "pass the width of the tokens"
            )
        self.d_model = d_model

    def embed(self, x: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """Adds the encoding of the positions.

        Args:
            x: (B, n, d_model) token embeddings.
            positions: (n,) or (B, n) integers.

        Returns:
            (B, n, d_model) in the dtype of `x`.

        Raises:
            Refused: shapes that do not fit, or positions that are not integers.
        """
        if x.shape[-1] != self.d_model:
            raise refuse(
                "Sinusoidal",
                "x does not have the width d_model",
                f"x {tuple(x.shape)}",
                f"(B, n, {self.d_model})",
                "construct Sinusoidal with the model's d_model",
            )
        return x + waves(fitting("Sinusoidal", x, positions), self.d_model).to(x.dtype)

    def extra_repr(self) -> str:
        """The settings that repr(module) shows."""
        return f"{self.d_model}"
