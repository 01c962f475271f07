"""LongRoPE: scaling of rotary angles with a divisor for each pair of components."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from ...common.errors import refuse
from .scaling import Scaling


@dataclass(frozen=True)
class LongRoPE(Scaling):
    """LongRoPE: one divisor per pair, with separate sets for inputs up to and beyond the trained length.

    Cosines and sines are multiplied by `magnitude`.

    Args:
        factor: the ratio of the new to the trained length.
        trained_length: the maximum length in training.
        short: (d/2,) divisors of θ for inputs up to trained_length.
        long: (d/2,) divisors of θ for longer inputs.
        attention_factor: the magnitude; None means √(1 + ln(factor) / ln(trained_length)).

    Raises:
        Refused: a number is not positive; the error lists every problem.

    Source:
        Ding et al. 2024; Phi-3.

    Examples:
        >>> from regard.torch.positions import LongRoPE
        >>> LongRoPE(2.0, 16, short=(1.0, 1.0), long=(1.0, 2.0)).frequencies(4, 10000.0)
        tensor([1.0000, 0.0100])
    """

    factor: float
    trained_length: int
    short: tuple[float, ...]
    long: tuple[float, ...]
    attention_factor: float | None = None

    @property
    def magnitude(self) -> float:
        """The factor of cosines and sines."""
        if self.attention_factor is not None:
            return self.attention_factor
        return 1.0 if self.factor <= 1 else math.sqrt(1 + math.log(self.factor) / math.log(self.trained_length))

    def frequencies(self, depth: int, base: float) -> torch.Tensor:
        """Computes the frequencies with the short divisors.

        Args:
            depth: d, the rotated depth.
            base: the base of the angles.

        Returns:
            (d/2,) radians per position, float32.

        Raises:
            Refused: the number of divisors is not d/2.
        """
        return self._divided(self.short, depth, base, torch.device("cpu"))

    def reaching(self, known: torch.Tensor, depth: int, base: float, positions: torch.Tensor) -> torch.Tensor:
        """Chooses the short or the long divisors by the largest of these positions.

        Args:
            known: (d/2,) frequencies from `frequencies`, used up to the trained length.
            depth: d, the rotated depth.
            base: the base of the angles.
            positions: (n,) or (B, n) positions of the call.

        Returns:
            (d/2,) radians per position.

        Raises:
            Refused: the number of divisors is not d/2.
        """
        beyond = self._divided(self.long, depth, base, known.device)
        return torch.where(positions.max() + 1 > self.trained_length, beyond, known)

    def _divided(self, by: tuple[float, ...], depth: int, base: float, device: torch.device) -> torch.Tensor:
        if len(by) != depth // 2:
            raise refuse(
                "LongRoPE",
                "the number of factors does not fit the depth",
                f"{len(by)} factors for depth {depth}",
                f"{depth // 2}: one for each pair",
                "check short and long",
            )
        slowness = base ** (torch.arange(0, depth, 2, dtype=torch.float32, device=device) / depth)
        return 1.0 / (torch.tensor(by, dtype=torch.float32, device=device) * slowness)
