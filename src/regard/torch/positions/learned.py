"""Learned positions: a vector for each place, added to the tokens."""

from __future__ import annotations

import torch

from ...common.errors import refuse
from .position import Position, fitting

__all__ = ["Learned"]


class Learned(Position):
    """x + weight[positions], weight (count, d_model) being learned.

    count: how many places there are; a position beyond them is refused. The parameter is named as torch.nn.Embedding
    names it, so GPT-2's `wpe.weight` and BERT's `position_embeddings.weight` fit.

    Source: Gehring et al. 2017; Radford et al. 2018.

    >>> Learned(8, 4).embed(torch.zeros(1, 3, 4), torch.arange(3)).shape
    torch.Size([1, 3, 4])
    """

    def __init__(self, count: int, d_model: int):
        super().__init__()
        if count < 1 or d_model < 1:
            raise refuse(
                "Learned",
                "there is nothing to learn",
                given=f"count={count}, d_model={d_model}",
                expected="at least 1 each",
                fix="give the longest length and the width of the tokens",
            )
        self.weight = torch.nn.Parameter(torch.empty(count, d_model))
        torch.nn.init.normal_(self.weight, std=0.02)

    def embed(self, x: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        count, width = self.weight.shape
        if x.shape[-1] != width:
            raise refuse(
                "Learned",
                "x has another width",
                given=f"x {tuple(x.shape)}",
                expected=f"(B, n, {width})",
                fix="give Learned the model's d_model",
            )
        fitting("Learned", x, positions)
        # A graphics card checks the range itself; asking it here would make every call wait for it.
        if positions.device.type == "cpu" and not torch.compiler.is_compiling() and positions.numel():
            low, high = int(positions.min()), int(positions.max())
            if low < 0 or high >= count:
                raise refuse(
                    "Learned",
                    "a position that was never learned",
                    given=f"positions {low} … {high}",
                    expected=f"0 … {count - 1}",
                    fix=(
                        "use shorter texts, a larger count, or positions that reach any length: Sinusoidal, "
                        "Rotary, ALiBi"
                    ),
                )
        return x + torch.nn.functional.embedding(positions, self.weight).to(x.dtype)

    def extra_repr(self) -> str:
        return "{}, {}".format(*self.weight.shape)
