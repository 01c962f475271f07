"""Rotary angles for texts longer than the model was trained on: one small frozen class for each way of slowing them
down.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any

import torch

from ...common.errors import Reason, Refused, refuse

__all__ = ["DynamicNTK", "Linear", "Llama3", "LongRoPE", "NTK", "Scaling", "YaRN", "frequencies"]


def frequencies(depth: int, base: float | torch.Tensor) -> torch.Tensor:
    """θᵢ = base^(−2i/depth) (depth/2,), radians per position, in float32 as models were trained with them.

    >>> frequencies(4, 10000.0).tolist()
    [1.0, 0.009999999776482582]
    """
    device = base.device if isinstance(base, torch.Tensor) else "cpu"
    return 1.0 / (base ** (torch.arange(0, depth, 2, dtype=torch.float32, device=device) / depth))


def larger_base(base: float, growth: Any, depth: int) -> Any:
    """The base at which the slowest pair of the depth turns `growth` times as slowly."""
    if depth == 2:
        raise refuse(
            "Rotary",
            "one pair has no slowest and fastest",
            given="depth 2 with a larger base",
            expected="at least two pairs",
            fix="use Linear, or a larger depth",
        )
    return base * growth ** (depth / (depth - 2))


@dataclass(frozen=True)
class Scaling:
    """No scaling: the angles of Su et al. 2021. Each kind overrides what it changes."""

    def __post_init__(self):
        wrong = []
        for field in fields(self):
            value = getattr(self, field.name)
            for number in value if isinstance(value, tuple) else (value,):
                if number is not None and not (
                    isinstance(number, int | float) and (number is False or 0 < number < math.inf)
                ):
                    wrong.append(
                        Reason(
                            f"{field.name} is no scale",
                            given=f"{number!r}",
                            expected="a finite number above 0",
                            fix="take it from the model's config",
                        )
                    )
        if wrong:
            raise Refused(type(self).__name__, wrong)

    @property
    def magnitude(self) -> float:
        """What cosines and sines are multiplied by."""
        return 1.0

    def frequencies(self, depth: int, base: float) -> torch.Tensor:
        """(depth/2,) radians per position, for lengths that the model was trained on."""
        return frequencies(depth, base)

    def reaching(self, known: torch.Tensor, depth: int, base: float, positions: torch.Tensor) -> torch.Tensor:
        """The frequencies for these positions; known are those of `frequencies`. Most kinds have one set for all
        lengths.
        """
        return known


@dataclass(frozen=True)
class Linear(Scaling):
    """Positions squeezed: θ / factor (Chen et al. 2023)."""

    factor: float

    def frequencies(self, depth: int, base: float) -> torch.Tensor:
        return frequencies(depth, base) / self.factor


@dataclass(frozen=True)
class NTK(Scaling):
    """A larger base for every length: base · factor^(d/(d−2)) slows the slowest pair by factor and leaves the
    fastest.
    """

    factor: float

    def frequencies(self, depth: int, base: float) -> torch.Tensor:
        return frequencies(depth, larger_base(base, self.factor, depth))


@dataclass(frozen=True)
class DynamicNTK(Scaling):
    """A base that grows with the text: base · (factor · n / trained_length − (factor − 1))^(d/(d−2)) for n >
    trained_length.

    n is the largest position of the call + 1; the frequencies of one call do not depend on the calls before it. Keys
    that lie in a cache keep the angle that they were given.
    """

    factor: float
    trained_length: int

    def reaching(self, known: torch.Tensor, depth: int, base: float, positions: torch.Tensor) -> torch.Tensor:
        length = torch.clamp(positions.max() + 1, min=self.trained_length).to(torch.float32)
        larger = larger_base(base, (self.factor * length / self.trained_length) - (self.factor - 1), depth)
        return torch.where(length > self.trained_length, frequencies(depth, larger), known)


@dataclass(frozen=True)
class YaRN(Scaling):
    """Fast pairs as they are, slow pairs squeezed, a ramp between; cosines and sines grow a little (Peng et al. 2023).

    A pair that turns more than beta_fast times within trained_length keeps θ, one that turns fewer than beta_slow times
    gets θ / factor. magnitude = attention_factor, by default 0.1 · ln(factor) + 1; with mscale and mscale_all_dim the
    ratio of the two. truncate: whether the ends of the ramp are whole numbers.
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
        if self.attention_factor is not None:
            return self.attention_factor
        if self.mscale and self.mscale_all_dim:
            return self._grown(self.mscale) / self._grown(self.mscale_all_dim)
        return self._grown(1.0)

    def _grown(self, mscale: float) -> float:
        return 1.0 if self.factor <= 1 else 0.1 * mscale * math.log(self.factor) + 1.0

    def frequencies(self, depth: int, base: float) -> torch.Tensor:
        low, high = (self._pair(turns, depth, base) for turns in (self.beta_fast, self.beta_slow))
        if self.truncate:
            low, high = math.floor(low), math.ceil(high)
        low, high = max(low, 0), min(high, depth - 1)
        high = high + 0.001 if low == high else high  # a ramp needs some width
        ramp = torch.clamp((torch.arange(depth // 2, dtype=torch.float32, device="cpu") - low) / (high - low), 0, 1)
        kept = 1 - ramp
        slowness = base ** (torch.arange(0, depth, 2, dtype=torch.float32, device="cpu") / depth)
        return (1.0 / (self.factor * slowness)) * (1 - kept) + (1.0 / slowness) * kept

    def _pair(self, turns: float, depth: int, base: float) -> float:
        """The index of the pair that turns so many times within trained_length."""
        return (depth * math.log(self.trained_length / (turns * 2 * math.pi))) / (2 * math.log(base))


@dataclass(frozen=True)
class Llama3(Scaling):
    """Short waves as they are, long waves squeezed, the middle between (Llama 3.1).

    Waves shorter than trained_length / high_frequency_factor keep θ, those longer than trained_length /
    low_frequency_factor get θ / factor.
    """

    factor: float
    trained_length: int
    low_frequency_factor: float = 1.0
    high_frequency_factor: float = 4.0

    def frequencies(self, depth: int, base: float) -> torch.Tensor:
        plain = frequencies(depth, base)
        wave = 2 * math.pi / plain
        low, high = self.low_frequency_factor, self.high_frequency_factor
        longest, shortest = self.trained_length / low, self.trained_length / high
        share = (self.trained_length / wave - low) / (high - low)
        between = (1 - share) * plain / self.factor + share * plain
        return torch.where(wave > longest, plain / self.factor, torch.where(wave < shortest, plain, between))


@dataclass(frozen=True)
class LongRoPE(Scaling):
    """A factor found by search for each pair, one set up to trained_length and one beyond (Ding et al. 2024; Phi-3).

    short, long: (depth/2,) divisors of θ. magnitude = attention_factor, by default √(1 + ln(factor) /
    ln(trained_length)).
    """

    factor: float
    trained_length: int
    short: tuple[float, ...]
    long: tuple[float, ...]
    attention_factor: float | None = None

    @property
    def magnitude(self) -> float:
        if self.attention_factor is not None:
            return self.attention_factor
        return 1.0 if self.factor <= 1 else math.sqrt(1 + math.log(self.factor) / math.log(self.trained_length))

    def frequencies(self, depth: int, base: float) -> torch.Tensor:
        return self._divided(self.short, depth, base, torch.device("cpu"))

    def reaching(self, known: torch.Tensor, depth: int, base: float, positions: torch.Tensor) -> torch.Tensor:
        beyond = self._divided(self.long, depth, base, known.device)
        return torch.where(positions.max() + 1 > self.trained_length, beyond, known)

    def _divided(self, by: tuple[float, ...], depth: int, base: float, device: torch.device) -> torch.Tensor:
        if len(by) != depth // 2:
            raise refuse(
                "LongRoPE",
                "the factors do not fit the depth",
                given=f"{len(by)} factors for depth {depth}",
                expected=f"{depth // 2}: one for each pair",
                fix="check short and long",
            )
        slowness = base ** (torch.arange(0, depth, 2, dtype=torch.float32, device=device) / depth)
        return 1.0 / (torch.tensor(by, dtype=torch.float32, device=device) * slowness)
