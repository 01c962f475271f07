"""From the logits of a row to its next token: each way of choosing is a few lines."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from ...common.errors import Reason, Refused, refuse
from ...language.masks import count

__all__ = ["Sampling", "draw", "min_p", "top_k", "top_p"]


def top_k(logits: torch.Tensor, k: int) -> torch.Tensor:
    """The k largest logits of each row (and what equals the k-th); the others become −inf.

    Source: Fan et al. 2018.

    >>> top_k(torch.tensor([3.0, 1.0, 2.0]), 2).tolist()
    [3.0, -inf, 2.0]
    """
    least = logits.topk(min(k, logits.shape[-1])).values[..., -1:]
    return logits.masked_fill(logits < least, -math.inf)


def top_p(logits: torch.Tensor, p: float) -> torch.Tensor:
    """The fewest tokens that have the probability p together, the likeliest first; the others become −inf.

    Source: Holtzman et al. 2020.

    >>> top_p(torch.tensor([0.5, 0.3, 0.2]).log(), 0.7).isfinite().tolist()
    [True, True, False]
    """
    falling, order = logits.sort(descending=True, stable=True)
    likely = falling.softmax(-1)
    without = likely.cumsum(-1) - likely >= p  # those before it suffice
    without[..., 0] = False  # as rounding can have it for a tiny p
    return logits.masked_fill(torch.zeros_like(without).scatter(-1, order, without), -math.inf)


def min_p(logits: torch.Tensor, p: float) -> torch.Tensor:
    """The tokens that are at least p times as likely as the likeliest; the others become −inf.

    Source: Nguyen et al. 2024.

    >>> min_p(torch.tensor([0.5, 0.3, 0.2]).log(), 0.5).isfinite().tolist()
    [True, True, False]
    """
    return logits.masked_fill(logits < logits.amax(-1, keepdim=True) + math.log(p), -math.inf)


def draw(logits: torch.Tensor, chance: torch.Tensor) -> torch.Tensor:
    """The first token of each row at which the probabilities, summed up to it, exceed its chance.

    logits (…, V), chance (…) uniform in [0, 1) -> tokens (…). A token whose logit is −inf is never drawn.

    >>> draw(torch.tensor([0.5, 0.3, 0.2]).log(), torch.tensor(0.6)).item()
    1
    """
    summed = logits.double().softmax(-1).cumsum(-1)
    reached = chance.to(summed)[..., None] * summed[..., -1:]
    return torch.searchsorted(summed, reached, right=True)[..., 0]


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """How the next token is chosen: temperature first, then what is left out, then chance.

    greedy: the largest logit, and no chance. temperature: logits are divided by it; below 1 is bolder, above 1 more
    even.
    top_k, top_p, min_p: see the functions of these names; each sees what the one before it left.

    Refused, with all reasons at once: numbers out of range, and what greedy has no use for.

    >>> Sampling(top_k=2)(torch.tensor([[3.0, 1.0, 2.0]]), torch.tensor([0.99])).tolist()
    [2]
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    greedy: bool = False

    def __post_init__(self):
        reasons: list[Reason] = []
        if not _between(self.temperature, 0, math.inf) or self.temperature in (0, math.inf):
            reasons.append(
                Reason(
                    "temperature is out of range",
                    given=f"temperature={self.temperature!r}",
                    expected="a number above 0",
                    fix="greedy=True is what 0 would mean",
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
                        f"{name} is no probability",
                        given=f"{name}={value!r}",
                        expected="above 0, at most 1",
                        fix="leave it out to keep all",
                    )
                )
        unused = [
            f"{name}={getattr(self, name)!r}" for name in ("top_k", "top_p", "min_p") if getattr(self, name) is not None
        ]
        unused += [f"temperature={self.temperature!r}"] if self.temperature != 1 else []
        if self.greedy and unused:
            reasons.append(
                Reason(
                    "greedy leaves nothing to chance",
                    given=", ".join(unused),
                    expected="greedy=True alone",
                    fix="leave out greedy, or the others",
                )
            )
        if reasons:
            raise Refused("generate", reasons)

    def __call__(self, logits: torch.Tensor, chance: torch.Tensor | None = None) -> torch.Tensor:
        """logits (B, V), chance (B,) uniform in [0, 1), unless greedy -> tokens (B,). Refused: logits that are no
        numbers.
        """
        if not bool(logits.amax(-1).isfinite().all()):
            raise refuse(
                "generate",
                "the model's logits are no numbers",
                given="NaN or infinity",
                expected="a finite largest logit in every row",
                fix="check the weights: regard.torch.trace names the first layer that goes wrong",
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
