"""Positions that are added to the token embeddings: sines and cosines of many wavelengths, or learned ones."""

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


@known_arguments
class Learned(Position):
    """Adds a learned vector per position to the token embeddings: x + weight[positions].

    The parameter `weight` (count, d_model) has the name that torch.nn.Embedding uses, so GPT-2's `wpe.weight` and
    BERT's `position_embeddings.weight` load.

    Args:
        count: the number of positions.
        d_model: the width of the token embeddings.

    Raises:
        Refused: count or d_model is less than 1.

    Source:
        Gehring et al. 2017; Radford et al. 2018.

    Examples:
        >>> import torch
        >>> from regard.torch.positions import Learned
        >>> Learned(8, 4).embed(torch.zeros(1, 3, 4), torch.arange(3)).shape
        torch.Size([1, 3, 4])
    """

    def __init__(self, count: int, d_model: int):
        super().__init__()
        if count < 1 or d_model < 1:
            raise refuse(
                "Learned",
                "count and d_model must be positive",
                f"count={count}, d_model={d_model}",
                "at least 1 each",
                "pass the maximum length and the width of the tokens",
            )
        self.weight = torch.nn.Parameter(torch.empty(count, d_model))
        torch.nn.init.normal_(self.weight, std=0.02)

    def embed(self, x: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """Adds the vectors of the positions.

        Args:
            x: (B, n, d_model) token embeddings.
            positions: (n,) or (B, n) integers from 0 to count − 1.

        Returns:
            (B, n, d_model) in the dtype of `x`.

        Raises:
            Refused: shapes that do not fit, or (on the CPU) positions out of range.
        """
        count, width = self.weight.shape
        if x.shape[-1] != width:
            raise refuse(
                "Learned",
                "x does not have the width d_model",
                f"x {tuple(x.shape)}",
                f"(B, n, {width})",
                "construct Learned with the model's d_model",
            )
        fitting("Learned", x, positions)
        # On a GPU the lookup itself checks the range; a check here would synchronize every call.
        if positions.device.type == "cpu" and not torch.compiler.is_compiling() and positions.numel():
            low, high = int(positions.min()), int(positions.max())
            if low < 0 or high >= count:
                raise refuse(
                    "Learned",
                    "a position is out of range",
                    f"positions {low} … {high}",
                    f"0 … {count - 1}",
                    (
                        "use shorter inputs, a larger count, or an encoding without a maximum length: Sinusoidal, "
                        "Rotary, ALiBi"
                    ),
                )
        return x + torch.nn.functional.embedding(positions, self.weight).to(x.dtype)

    def extra_repr(self) -> str:
        """The settings that repr(module) shows."""
        return "{}, {}".format(*self.weight.shape)
