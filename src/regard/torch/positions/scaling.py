"""Scaling of rotary angles for inputs longer than those in training: one frozen dataclass per method."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any

import torch

from ...common.errors import Reason, Refused, refuse


def frequencies(depth: int, base: float | torch.Tensor) -> torch.Tensor:
    """θᵢ = base^(−2i/depth) (depth/2,), radians per position, in float32 as models were trained with them.

    >>> frequencies(4, 10000.0).tolist()
    [1.0, 0.009999999776482582]
    """
    return 1.0 / slowness(depth, base, base.device if isinstance(base, torch.Tensor) else "cpu")


def slowness(depth: int, base: float | torch.Tensor, device: torch.device | str) -> torch.Tensor:
    """1 / θᵢ (depth/2,), in float32."""
    return base ** (torch.arange(0, depth, 2, dtype=torch.float32, device=device) / depth)


def larger_base(base: float, growth: Any, depth: int) -> Any:
    """The base at which the lowest frequency is divided by `growth`."""
    if depth == 2:
        raise refuse(
            "Rotary",
            "a larger base has no effect on a single pair",
            "depth 2 with a larger base",
            "at least two pairs",
            "use Linear, or a larger depth",
        )
    return base * growth ** (depth / (depth - 2))


@dataclass(frozen=True)
class Scaling:
    """Base class, without scaling: the angles of Su et al. 2021. Subclasses override what they change."""

    def __post_init__(self) -> None:
        wrong = []
        for field in fields(self):
            value = getattr(self, field.name)
            for number in value if isinstance(value, tuple) else (value,):
                if number is not None and not (
                    isinstance(number, int | float) and (number is False or 0 < number < math.inf)
                ):
                    wrong.append(
                        Reason(
                            f"{field.name} is not a positive number",
                            f"{number!r}",
                            "a finite number above 0",
                            "take it from the model's config",
                        )
                    )
        if wrong:
            raise Refused(type(self).__name__, wrong)

    @property
    def magnitude(self) -> float:
        """The factor of cosines and sines."""
        return 1.0

    def frequencies(self, depth: int, base: float) -> torch.Tensor:
        """Computes the frequencies for lengths up to those in training.

        Args:
            depth: d, the rotated depth.
            base: the base of the angles.

        Returns:
            (d/2,) radians per position, float32.
        """
        return frequencies(depth, base)

    def reaching(self, known: torch.Tensor, depth: int, base: float, positions: torch.Tensor) -> torch.Tensor:
        """Computes the frequencies for these positions; most methods use the same ones for all lengths.

        Args:
            known: (d/2,) frequencies from `frequencies`.
            depth: d, the rotated depth.
            base: the base of the angles.
            positions: (n,) or (B, n) positions of the call.

        Returns:
            (d/2,) radians per position.
        """
        return known


@dataclass(frozen=True)
class Linear(Scaling):
    """Position interpolation: all frequencies are divided by a factor, θ / factor.

    Args:
        factor: the ratio of the new to the trained length.

    Raises:
        Refused: factor is not a positive number.

    Source:
        Chen et al. 2023.

    Examples:
        >>> from regard.torch.positions import Linear
        >>> Linear(2.0).frequencies(4, 10000.0)
        tensor([0.5000, 0.0050])
    """

    factor: float

    def frequencies(self, depth: int, base: float) -> torch.Tensor:
        """Computes the divided frequencies.

        Args:
            depth: d, the rotated depth.
            base: the base of the angles.

        Returns:
            (d/2,) radians per position, float32.
        """
        return frequencies(depth, base) / self.factor


@dataclass(frozen=True)
class NTK(Scaling):
    """A larger base for every length: base · factor^(d/(d−2)).

    The lowest frequency is divided by `factor`, and the highest is unchanged.

    Args:
        factor: the divisor of the lowest frequency.

    Raises:
        Refused: factor is not a positive number.

    Examples:
        >>> from regard.torch.positions import NTK
        >>> NTK(2.0).frequencies(4, 10000.0)
        tensor([1.0000, 0.0050])
    """

    factor: float

    def frequencies(self, depth: int, base: float) -> torch.Tensor:
        """Computes the frequencies of the larger base.

        Args:
            depth: d, the rotated depth.
            base: the base of the angles.

        Returns:
            (d/2,) radians per position, float32.

        Raises:
            Refused: the depth is 2.
        """
        return frequencies(depth, larger_base(base, self.factor, depth))


@dataclass(frozen=True)
class DynamicNTK(Scaling):
    """A base that grows with the length n beyond the trained length L.

    base · (factor · n / L − (factor − 1))^(d/(d−2)) for n > L

    n is the largest position of the call + 1; the frequencies do not depend on previous calls. Keys in a cache keep
    the rotation that they were stored with.

    Args:
        factor: the scaling factor of the config.
        trained_length: L, the maximum length in training.

    Raises:
        Refused: an argument is not a positive number; the error lists every problem.

    Examples:
        >>> from regard.torch.positions import DynamicNTK, Rotary
        >>> Rotary(8, scaling=DynamicNTK(2.0, trained_length=16))
        Rotary(depth=8, base=10000, interleaved=False, scaling=DynamicNTK(factor=2.0, trained_length=16))
    """

    factor: float
    trained_length: int

    def reaching(self, known: torch.Tensor, depth: int, base: float, positions: torch.Tensor) -> torch.Tensor:
        """Computes the frequencies for the largest of these positions.

        Args:
            known: (d/2,) frequencies from `frequencies`, used up to the trained length.
            depth: d, the rotated depth.
            base: the base of the angles.
            positions: (n,) or (B, n) positions of the call.

        Returns:
            (d/2,) radians per position.

        Raises:
            Refused: the depth is 2.
        """
        length = torch.clamp(positions.max() + 1, min=self.trained_length).to(torch.float32)
        larger = larger_base(base, (self.factor * length / self.trained_length) - (self.factor - 1), depth)
        return torch.where(length > self.trained_length, frequencies(depth, larger), known)


@dataclass(frozen=True)
class YaRN(Scaling):
    """YaRN: high frequencies are unchanged, low frequencies are divided by a factor, with a linear ramp between them.

    A pair with more than beta_fast rotations within trained_length keeps θ; one with fewer than beta_slow rotations
    uses θ / factor. Cosines and sines are multiplied by `magnitude`.

    Args:
        factor: the ratio of the new to the trained length.
        trained_length: the maximum length in training.
        beta_fast: the number of rotations above which a frequency is unchanged.
        beta_slow: the number of rotations below which a frequency is divided by `factor`.
        attention_factor: the magnitude; None means 0.1 · ln(factor) + 1, or a ratio given by the next two.
        mscale: the coefficient of the numerator of the magnitude.
        mscale_all_dim: the coefficient of the denominator of the magnitude.
        truncate: whether the ends of the ramp are rounded to integers.

    Raises:
        Refused: an argument is not a positive number; the error lists every problem.

    Source:
        Peng et al. 2023.

    Examples:
        >>> from regard.torch.positions import YaRN
        >>> round(YaRN(4.0, trained_length=4096).magnitude, 4)
        1.1386
    """

    factor: float
    trained_length: int
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    attention_factor: float | None = None
    mscale: float | None = None
    mscale_all_dim: float | None = None
    truncate: bool = True

    @property
    def magnitude(self) -> float:
        """The factor of cosines and sines."""
        if self.attention_factor is not None:
            return self.attention_factor
        if self.mscale and self.mscale_all_dim:
            return self._magnitude(self.mscale) / self._magnitude(self.mscale_all_dim)
        return self._magnitude(1.0)

    def _magnitude(self, mscale: float) -> float:
        return 1.0 if self.factor <= 1 else 0.1 * mscale * math.log(self.factor) + 1.0

    def frequencies(self, depth: int, base: float) -> torch.Tensor:
        """Computes the frequencies with the ramp.

        Args:
            depth: d, the rotated depth.
            base: the base of the angles.

        Returns:
            (d/2,) radians per position, float32.
        """
        low, high = (self._pair(turns, depth, base) for turns in (self.beta_fast, self.beta_slow))
        if self.truncate:
            low, high = math.floor(low), math.ceil(high)
        low, high = max(low, 0), min(high, depth - 1)
        high = high + 0.001 if low == high else high  # a ramp needs some width
        ramp = torch.clamp((torch.arange(depth // 2, dtype=torch.float32, device="cpu") - low) / (high - low), 0, 1)
        kept = 1 - ramp
        plain = slowness(depth, base, "cpu")
        return (1.0 / (self.factor * plain)) * (1 - kept) + (1.0 / plain) * kept

    def _pair(self, turns: float, depth: int, base: float) -> float:
        """The (fractional) index of the pair with this number of rotations within trained_length."""
        return (depth * math.log(self.trained_length / (turns * 2 * math.pi))) / (2 * math.log(base))


@dataclass(frozen=True)
class Llama3(Scaling):
    """The scaling of Llama 3.1: short wavelengths are unchanged, long ones are divided by a factor.

    Wavelengths below trained_length / high_frequency_factor keep θ, those above trained_length / low_frequency_factor
    use θ / factor, and those between are interpolated.

    Args:
        factor: the divisor of low frequencies.
        trained_length: the maximum length in training.
        low_frequency_factor: sets the wavelength above which frequencies are divided.
        high_frequency_factor: sets the wavelength below which frequencies are unchanged.

    Raises:
        Refused: an argument is not a positive number; the error lists every problem.

    Source:
        Llama 3.1, Meta 2024.

    Examples:
        >>> from regard.torch.positions import Llama3
        >>> Llama3(8.0, trained_length=8192).frequencies(4, 500000.0)[0]
        tensor(1.)
    """

    factor: float
    trained_length: int
    low_frequency_factor: float = 1.0
    high_frequency_factor: float = 4.0

    def frequencies(self, depth: int, base: float) -> torch.Tensor:
        """Computes the scaled frequencies.

        Args:
            depth: d, the rotated depth.
            base: the base of the angles.

        Returns:
            (d/2,) radians per position, float32.
        """
        plain = frequencies(depth, base)
        wave = 2 * math.pi / plain
        low, high = self.low_frequency_factor, self.high_frequency_factor
        longest, shortest = self.trained_length / low, self.trained_length / high
        share = (self.trained_length / wave - low) / (high - low)
        between = (1 - share) * plain / self.factor + share * plain
        return torch.where(wave > longest, plain / self.factor, torch.where(wave < shortest, plain, between))


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
        return 1.0 / (torch.tensor(by, dtype=torch.float32, device=device) * slowness(depth, base, device))
