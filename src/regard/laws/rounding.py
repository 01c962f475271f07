"""How far rounding moves scores and weights: the errors that a computation in the dtype of a call may make, to first
order in each operation and without approximation through the softmax.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ..common.dtypes import FLOATS
from .arguments import Arguments, heads_of
from .call import Call
from .forward import Outcome, Part, read


@dataclass(frozen=True)
class Units:
    """The numbers of a dtype that errors are made of.

    one: the largest relative error of one rounding · sums: that of one addition in a long sum, which 16-bit
    implementations keep in float32 · least: numbers below it may become 0 · most: the largest number
    """

    one: float
    sums: float
    least: float
    most: float

    def times(self, c: float) -> Units:
        """The same with c times the relative errors."""
        return Units(c * self.one, c * self.sums, self.least, self.most)

    def of_product(self, depth: int) -> float:
        """The error of a sum of products over the depth, relative to the sum of their sizes: one rounding, and
        additions whose errors add up at random.
        """
        return self.one + self.sums * math.sqrt(depth)

    def of_sum(self, terms: np.ndarray | float) -> np.ndarray:
        """The relative error of a sum over keys or rows: one rounding, and additions. Up to 512 terms may be added one
        after the other, where errors of equal terms are equal and add up; those of longer sums add up at random.
        """
        return self.one + self.sums * np.maximum(np.minimum(terms, 512), np.sqrt(terms))


def units_of(dtype: np.dtype) -> Units:
    """The units of a dtype. Float32 and bfloat16 may be flushed to zero below the normal numbers; float16, which no
    processor does by default, keeps them to half of the last denormal.
    """
    row = FLOATS[dtype.name]
    if row.small_range:
        least, most = float(row.limits.smallest_subnormal), float(row.limits.max)
    else:
        like = FLOATS[row.sums].limits
        least, most = float(like.tiny), float(like.max)
    return Units(row.roundoff, FLOATS[row.sums].roundoff, least, most)


class Rounding:
    """The errors of one call, with these units. Arrays are (B, H, Q, K) unless said otherwise; q, k, v are those that
    each query head uses, with 0 for infinities and NaN, which are compared exactly and not within a bound.
    """

    def __init__(self, arguments: Arguments, outcome: Outcome, call: Call, units: Units):
        self.arguments, self.outcome, self.call, self.units = arguments, outcome, call, units
        heads = outcome.scores.shape[1]
        self.key_heads, self.value_heads = heads_of(arguments.key_heads, heads), heads_of(arguments.value_heads, heads)
        self.q = finite(call.q)
        self.k, self.v = finite(call.k)[:, self.key_heads], finite(call.v)[:, self.value_heads]
        self.attended = outcome.allowed & np.isfinite(outcome.scores)

    @cached_property
    def products(self) -> np.ndarray:
        """q·k before anything is done to it."""
        return self.q @ self.k.swapaxes(-1, -2)

    @cached_property
    def sizes(self) -> np.ndarray:
        """κ = |scale| · Σ_d |q_d k_d|, of which a score is what cancellation leaves."""
        return abs(self.arguments.scale) * (abs(self.q) @ abs(self.k).swapaxes(-1, -2))

    @cached_property
    def steps(self) -> list[tuple[str, np.ndarray, np.ndarray]]:
        """The score and its largest error after each step: "product", then "softcap" and "bias" in their order."""
        one, least = self.units.one, self.units.least
        D, factor = self.arguments.depth, max(1.0, abs(self.arguments.scale))
        score = self.arguments.scale * self.products
        small = abs(self.q).sum(-1)[..., :, None] + abs(self.k).sum(-1)[..., None, :] + D
        error = self.units.of_product(D) * self.sizes + factor * least * small
        found = [("product", score, error)]
        for name in self.arguments.scores:
            if name == "softcap":
                cap = float(self.call.softcap or 1.0)
                score = cap * np.tanh(score / cap)
                # The slope is at most 1, and at most 0.77 / cap steeper than here for each unit of the error.
                slope = np.minimum(1, 1 - (score / cap) ** 2 + 0.77 * error / abs(cap))
                error = slope * error + one * abs(score)
            else:
                bias = finite(self.call.bias) if self.call.bias is not None else np.zeros(1)
                score = score + bias
                error = error + one * (abs(bias) + abs(score))
            found.append((name, score, error))
        return found

    @cached_property
    def count(self) -> np.ndarray:
        """How many keys each row attends to (B, H, Q, 1)."""
        return self.attended.sum(-1, keepdims=True)

    @cached_property
    def logs(self) -> np.ndarray:
        """ln of each weight, the sinks in columns after the keys (B, H, Q, K + sinks); −∞ for 0."""
        with np.errstate(all="ignore"):
            scores = np.where(self.attended, self.outcome.scores, -np.inf)
            if self.arguments.sinks is not None:
                sinks = self.arguments.sinks[:, None]
                scores = np.concatenate([scores, np.broadcast_to(sinks, (*scores.shape[:-1], sinks.shape[-1]))], -1)
            found = scores - self.outcome.lse[..., None]
            return np.where(np.isfinite(found), found, -np.inf)

    @cached_property
    def exponents(self) -> np.ndarray:
        """The largest error of the logarithm of each weight before it is divided by the sum, sinks after the keys."""
        error, one = np.broadcast_to(self.steps[-1][2], self.attended.shape), self.units.one
        if self.arguments.sinks is not None:
            sinks = one * abs(finite(self.arguments.sinks))[:, None]
            error = np.concatenate([error, np.broadcast_to(sinks, (*error.shape[:3], self.sinks))], -1)
        below = self.logs.max(-1, initial=-np.inf, keepdims=True) - self.logs
        return np.where(np.isfinite(below), error + one * (1 + below), 0)

    @property
    def sinks(self) -> int:
        """The number of sinks of each head."""
        return 0 if self.arguments.sinks is None else self.arguments.sinks.shape[-1]

    @cached_property
    def weights(self) -> np.ndarray:
        """The weights, those of the sinks after the keys."""
        return np.exp(self.logs)

    @cached_property
    def shifts(self) -> tuple[np.ndarray, np.ndarray]:
        """How far the errors of scores move each weight (sinks after the keys), and the logarithm of the denominator
        (B, H, Q).

        If each score is off by at most ρ, a weight is largest if its own score is ρ too high and all others too low:
        w e^ρ / (w e^ρ + Σ_others w e^−ρ). Written in differences, so that nothing cancels where ρ is tiny.
        """
        w, rho = self.weights, self.exponents
        with np.errstate(all="ignore"):
            more = np.where(rho < 1, w * np.expm1(np.minimum(rho, 1)), np.exp(np.minimum(self.logs + rho, 600)) - w)
            less = -w * np.expm1(-rho)
            all_more, all_less = more.sum(-1, keepdims=True), less.sum(-1, keepdims=True)
            rest = all_less - less
            up = (more * (1 - w) + w * rest) / np.maximum(1 + more - rest, 1e-300)
            rest = all_more - more
            down = (less * (1 - w) + w * rest) / (1 - less + rest)
            top = np.maximum(np.log1p(all_more), -np.log1p(-np.minimum(all_less, 1)))[..., 0]
        return np.clip(np.maximum(up, down), 0, 1), top

    @cached_property
    def weight_errors(self) -> np.ndarray:
        """The largest error of each weight, sinks after the keys: from the scores, the sum and the division, or from
        lse where a weight is exp(score − lse); implementations keep lse in the dtype of sums.
        """
        lse = self.units.sums * abs(finite(self.outcome.lse))[..., None]
        normal = self.weights * (self.units.of_sum(self.count + self.sinks) + np.expm1(np.minimum(lse, 50)))
        return np.where(self.logs == -np.inf, 0, self.shifts[0] + normal + self.units.least)

    @cached_property
    def lse_errors(self) -> np.ndarray:
        """The largest error of each lse (B, H, Q)."""
        lse = finite(self.outcome.lse)
        top = self.logs.max(-1, initial=-np.inf)
        beside = np.where(np.isfinite(top), abs(lse + top) + abs(top), 0)  # |m| + |ln Σ exp(s − m)|
        terms = self.count[..., 0] + self.sinks
        return self.shifts[1] + self.units.of_sum(terms) + self.units.one * (beside + abs(lse))

    @cached_property
    def beyond(self) -> np.ndarray:
        """The rows (B, H, Q) in which a product or a score exceeds the dtype, so that nothing is known of them."""
        found = np.zeros(self.outcome.lse.shape, bool)
        largest = [abs(part).max(initial=0) for part in (self.q, self.k)]
        most = 0.99 * self.units.most
        factor = max(1.0, abs(self.arguments.scale))
        if largest[0] * largest[1] * self.arguments.depth * factor > most:
            found |= (self.attended & (factor * abs(self.products) > most)).any(-1)
        return found


def finite(array: np.ndarray) -> np.ndarray:
    """In float64, with 0 for infinities and NaN."""
    array = np.asarray(array, np.float64)
    return array if np.isfinite(array).all() else np.where(np.isfinite(array), array, 0)


def first_order(
    arguments: Arguments,
    outcome: Outcome,
    q: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
    *,
    units: Units,
    part: Part | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """(bound of out, bound of lse) of any steps, those of mistakes too, where `bound` knows those of the law only.

    A score is off by ρ = 4 u (|scale · q·k| + |score|) + 4 u_sums (√D + 1) |scale| Σ_d |q_d k_d|, and a weight by
    w (exp(ρ + Σ w ρ) − 1 + 4 u + 4 u_sums (√K + 1)).
    """
    with np.errstate(all="ignore"):
        q, k, v = (finite(each) for each in read(arguments, q, k, v, part))
        D, K = q.shape[-1], k.shape[2]
        scores = abs(finite(np.where(outcome.allowed, outcome.scores, 0)))
        logits = scores if arguments.score is None else abs(arguments.scale * arguments.product(q, k))
        sizes = abs(arguments.scale) * (abs(q) @ abs(k).swapaxes(-1, -2))
        off = 4 * units.one * (logits + scores) + 4 * units.sums * (math.sqrt(D) + 1) * sizes
        weights = abs(finite(outcome.weights))  # those of a mistake may be negative
        reached = np.where(weights > 0, off, 0) if weights.shape == off.shape else off
        summed = 4 * units.sums * (math.sqrt(K) + 1)
        moved = weights * (np.expm1(reached + (weights * reached).sum(-1, keepdims=True)) + 4 * units.one + summed)
        out = arguments.finish((moved + units.least) @ abs(v)) + 2 * units.one * abs(outcome.out) + units.least
        of_lse = reached.max(-1, initial=0)
        if of_lse.shape != outcome.lse.shape == of_lse.swapaxes(1, 2).shape:
            of_lse = of_lse.swapaxes(1, 2)
        return out, np.broadcast_to(of_lse + summed, outcome.lse.shape) + 8 * units.one * (1 + abs(outcome.lse))
