"""Sampling: chooses the next token from logits, with temperature, top-k, top-p and min-p."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from ...common.errors import Reason, Refused, refuse
from ...language.masks import count


def top_k(logits: torch.Tensor, k: int) -> torch.Tensor:
    """Keeps the k largest logits of each row (and ties with the k-th), and sets the others to −inf.

    Args:
        logits: (…, V) logits.
        k: number of tokens to keep.

    Returns:
        (…, V) logits.

    Source:
        Fan et al. 2018.

    Examples:
        >>> top_k(torch.tensor([3.0, 1.0, 2.0]), 2).tolist()
        [3.0, -inf, 2.0]
    """
    least = logits.topk(min(k, logits.shape[-1])).values[..., -1:]
    return logits.masked_fill(logits < least, -math.inf)


def top_p(logits: torch.Tensor, p: float) -> torch.Tensor:
    """Nucleus sampling: keeps the fewest most probable tokens with a total probability of at least p.

    The logits of the other tokens become −inf.

    Args:
        logits: (…, V) logits.
        p: the total probability to keep, above 0 and at most 1.

    Returns:
        (…, V) logits.

    Source:
        Holtzman et al. 2020.

    Examples:
        >>> top_p(torch.tensor([0.5, 0.3, 0.2]).log(), 0.7).isfinite().tolist()
        [True, True, False]
    """
    descending, order = logits.sort(descending=True, stable=True)
    probability = descending.softmax(-1)
    removed = probability.cumsum(-1) - probability >= p  # the tokens before it suffice
    removed[..., 0] = False  # rounding can remove the first token if p is tiny
    return logits.masked_fill(torch.zeros_like(removed).scatter(-1, order, removed), -math.inf)


def min_p(logits: torch.Tensor, p: float) -> torch.Tensor:
    """Keeps the tokens that are at least p times as probable as the most probable token.

    The logits of the other tokens become −inf.

    Args:
        logits: (…, V) logits.
        p: the minimum relative probability, above 0 and at most 1.

    Returns:
        (…, V) logits.

    Source:
        Nguyen et al. 2024.

    Examples:
        >>> min_p(torch.tensor([0.5, 0.3, 0.2]).log(), 0.5).isfinite().tolist()
        [True, True, False]
    """
    return logits.masked_fill(logits < logits.amax(-1, keepdim=True) + math.log(p), -math.inf)


def draw(logits: torch.Tensor, chance: torch.Tensor) -> torch.Tensor:
    """Draws a token for each row by inverting the cumulative distribution. Tokens with logit −inf are never drawn.

    Args:
        logits: (…, V) logits.
        chance: (…) uniform random numbers in [0, 1).

    Returns:
        (…) tokens: the first at which the cumulative probability exceeds `chance`.

    Examples:
        >>> draw(torch.tensor([0.5, 0.3, 0.2]).log(), torch.tensor(0.6)).item()
        1
    """
    summed = logits.double().softmax(-1).cumsum(-1)
    reached = chance.to(summed)[..., None] * summed[..., -1:]
    return torch.searchsorted(summed, reached, right=True)[..., 0]


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """Chooses the next token: temperature, then top-k, top-p and min-p in this order, then a random draw.

    Args:
        temperature: divisor of the logits: below 1 sharpens the distribution, above 1 flattens it.
        top_k: sample from the k most probable tokens only. None: all.
        top_p: sample from the fewest tokens whose probabilities sum to at least p. None: all.
        min_p: sample from tokens that are at least p times as probable as the most probable one. None: all.
        greedy: always choose the most probable token.

    Raises:
        Refused: values out of range, or other arguments together with `greedy`, listing every problem.

    Examples:
        >>> Sampling(top_k=2)(torch.tensor([[3.0, 1.0, 2.0]]), torch.tensor([0.99])).tolist()
        [2]
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    greedy: bool = False

    def __post_init__(self) -> None:
        reasons: list[Reason] = []
        if not _between(self.temperature, 0, math.inf) or self.temperature in (0, math.inf):
            reasons.append(
                Reason(
                    "temperature is out of range",
                    f"temperature={self.temperature!r}",
                    "a number above 0",
                    "pass greedy=True to always choose the most probable token",
                )
            )
        if self.top_k is not None:
            try:
                count(self.top_k, "generate", "top_k", 1)
            except Refused as refused:
                reasons += refused.reasons
        for name in ("top_p", "min_p"):
            value = getattr(self, name)
            if value is not None and (not _between(value, 0, 1) or value == 0):
                reasons.append(
                    Reason(
                        f"{name} is out of range",
                        f"{name}={value!r}",
                        "a number above 0 and at most 1",
                        f"omit {name} to sample from all tokens",
                    )
                )
        unused = [
            f"{name}={getattr(self, name)!r}" for name in ("top_k", "top_p", "min_p") if getattr(self, name) is not None
        ]
        unused += [f"temperature={self.temperature!r}"] if self.temperature != 1 else []
        if self.greedy and unused:
            reasons.append(
                Reason(
                    "greedy cannot be combined with sampling options",
                    f"greedy=True, {', '.join(unused)}",
                    "greedy=True alone",
                    "omit greedy, or the other options",
                )
            )
        if reasons:
            raise Refused("generate", reasons)

    def __call__(self, logits: torch.Tensor, chance: torch.Tensor | None = None) -> torch.Tensor:
        """Chooses a token for each row.

        Args:
            logits: (B, V) logits.
            chance: (B,) uniform random numbers in [0, 1); None only if `greedy`.

        Returns:
            (B,) tokens.

        Raises:
            Refused: logits that are NaN or infinite.
        """
        if not bool(logits.amax(-1).isfinite().all()):
            raise refuse(
                "generate",
                "the logits are not finite",
                "NaN or infinity",
                "a finite largest logit in every row",
                "find the first layer that computes NaN or infinity with regard.torch.trace",
            )
        if self.greedy:
            return logits.argmax(-1)
        assert chance is not None
        logits = logits.float() / self.temperature
        logits = logits if self.top_k is None else top_k(logits, self.top_k)
        logits = logits if self.top_p is None else top_p(logits, self.top_p)
        logits = logits if self.min_p is None else min_p(logits, self.min_p)
        return draw(logits, chance)


def _between(value, low: float, high: float) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and low <= value <= high
