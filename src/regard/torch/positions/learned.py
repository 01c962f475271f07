"""Learned positions: one vector per position, added to the token embeddings."""

from __future__ import annotations

import torch

from ...common.errors import refuse
from ...common.text.keywords import known_arguments
from .position import Position, fitting


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
