"""How far a right result may be from the law: the errors that a computation in the dtype of a call may make, to first
order in each operation and without approximation through the softmax, and the bounds that follow for each element of a
result. Where numbers cancel, more error is allowed, and elsewhere less.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from ..common.dtypes import FLOATS
from .arguments import Arguments, heads_of, summed_over_heads, summed_over_shape
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


# How many times the errors of the formulas below are allowed: one and a half times to twice the most that
# legitimate computations in the same dtype need, some of them equal, so that they are computed together.
# `python -m bench.rounding.variants` measures them.
CONSTANTS: Mapping[str, float] = {
    "out": 1.7,
    "lse": 1.95,
    "weights": 2.9,
    "q": 1.9,
    "k": 1.9,
    "v": 1.9,
    "bias": 1.4,
    "sinks": 0.65,
}


class Bounds(NamedTuple):
    """The largest error of each element: out (B, H, Q, E), lse (B, H, Q), weights (B, H, Q, K). ∞ where the call
    exceeds the range of its dtype, so that any number may come out.
    """

    out: np.ndarray
    lse: np.ndarray
    weights: np.ndarray


def bound(arguments: Arguments, outcome: Outcome, call: Call, constants: Mapping[str, float] = CONSTANTS) -> Bounds:
    """The largest errors of a right implementation in the dtype of the call.

        |error of out| ≤ Σ_j Δw_j |v_j| + c (u + u_sums g(n)) Σ_j w_j |v_j| + u |out|

    Δw_j is how far a weight moves if every score is off by c (u + u_sums √D) κ, where κ is |scale| Σ_d |q_d k_d|. u is
    the unit of the dtype, because a legitimate 16-bit implementation may round after every operation; u_sums is that of
    float32, in which it adds; g(n) = max(min(n, 512), √n).
    """
    errors = shared(arguments, outcome, call, [constants[what] for what in Bounds._fields])
    last = units_of(call.dtype).one
    of_out, of_lse, of_weights = (errors[constants[what]] for what in Bounds._fields)
    K = of_weights.k.shape[2]
    with np.errstate(all="ignore"):
        lse = within_range(of_lse.lse_errors[..., None], outcome.lse[..., None], last, of_lse)[..., 0]
        alike = of_weights.units.of_sum(K) / max(K, 1)
        weights = np.where(of_weights.count == 0, alike, of_weights.weight_errors[..., :K])
        return Bounds(
            out_bound(of_out, last),
            np.where(outcome.lse == -np.inf, 0, lse),
            within_range(weights, outcome.weights, last, of_weights),
        )


def shared(arguments: Arguments, outcome: Outcome, call: Call, constants: Iterable[float]) -> dict[float, Rounding]:
    """The errors with each constant; results with the same constant share them."""
    units = units_of(call.dtype)
    return {each: Rounding(arguments, outcome, call, units.times(each)) for each in constants}


def out_bound(errors: Rounding, last: float) -> np.ndarray:
    """The bound of the output; last: the unit of its own rounding."""
    K, v = errors.k.shape[2], abs(errors.v)
    found = errors.weight_errors[..., :K] @ v + errors.units.of_sum(errors.count) * (errors.weights[..., :K] @ v)
    found = found + errors.units.least * (errors.attended.astype(np.float64) @ v)
    if K and (errors.count == 0).any():  # 0, or the mean of the values where that is the convention
        found = np.where(errors.count == 0, errors.units.of_sum(K) * v.mean(2)[:, :, None], found)
    found = within_range(found, errors.outcome.out, last, errors)
    hidden = errors.attended & (errors.weights[..., :K] < 4 * errors.units.least)
    if hidden.any():  # a weight that the dtype cannot hold, times an infinite or NaN value
        values = np.asarray(errors.call.v, np.float64)[:, errors.value_heads]
        found = np.where(hidden.astype(np.float64) @ ~np.isfinite(values) > 0, np.inf, found)
    return found


def within_range(found: np.ndarray, result: np.ndarray, last: float, errors: Rounding) -> np.ndarray:
    """A bound with the rounding of the result, and ∞ where its dtype ends."""
    size = abs(finite(result))
    found = found * (1 + last) + last * size + errors.units.least * (found > 0)
    beyond = errors.beyond[..., None] | (found + size > 0.999 * errors.units.most)
    return np.where(beyond | np.isnan(found), np.inf, found)


class GradientErrors:
    """The errors of the gradients of one call.

    errors: those of its forward pass · out: the largest error of the output, which δ is computed from · dweights:
    dout·v · delta: Σ weights · dweights (B, H, Q) · beside: dlse − δ, which is added to dweights
    """

    def __init__(self, errors: Rounding, out: np.ndarray):
        self.errors, self.out, self.units = errors, out, errors.units
        call, outcome, self.attended = errors.call, errors.outcome, errors.attended
        assert call.dout is not None
        self.dout, self.dlse = finite(call.dout), 0.0 if call.dlse is None else finite(call.dlse)
        self.delta = (self.dout * np.where(outcome.allowed.any(-1, keepdims=True), finite(outcome.out), 0)).sum(-1)
        self.beside = self.dlse - self.delta
        self.dweights = self.dout @ errors.v.swapaxes(-1, -2)

    @cached_property
    def through(self) -> dict[str, np.ndarray]:
        """The gradient of the result of each change of the score by its name, and of scale · q·k as "product"."""
        weights = finite(self.errors.outcome.weights)
        gradient = np.where(self.attended, weights * (self.dweights + self.beside[..., None]), 0)
        found = {}
        for name, score, _ in reversed(self.errors.steps):
            found[name] = gradient
            if name == "softcap":
                gradient = np.where(self.attended, gradient * (1 - self._share(score) ** 2), 0)
        return found

    def _share(self, score: np.ndarray) -> np.ndarray:
        """Scores after the softcap, as shares of it."""
        assert self.errors.call.softcap is not None
        return score / self.errors.call.softcap

    @cached_property
    def beyond(self) -> bool:
        """Whether an intermediate number exceeds the dtype, so that nothing is known of the gradients."""
        sizes = (abs(self.dout) @ abs(self.errors.v).swapaxes(-1, -2), self.delta, self.beside)
        largest = max((float(abs(each).max(initial=0)) for each in sizes), default=0.0)
        return bool(self.errors.beyond.any()) or largest > 0.99 * self.units.most

    @cached_property
    def weight_errors(self) -> np.ndarray:
        """The errors of the weights (sinks after the keys): those of the forward pass, or of weights that are computed
        again from the scores and lse in the dtype of sums, and then do not add up to 1.
        """
        errors, units = self.errors, self.units
        wide = Units(units.sums, units.sums, units.least, units.most)
        summed = Rounding(errors.arguments, errors.outcome, errors.call, wide)
        again = np.expm1(np.minimum(summed.exponents + summed.lse_errors[..., None], 50))
        return errors.weight_errors + errors.weights * again

    @cached_property
    def dweight_errors(self) -> np.ndarray:
        """The errors of dout·v."""
        sizes = abs(self.dout) @ abs(self.errors.v).swapaxes(-1, -2)
        E = self.dout.shape[-1]
        return self.units.of_product(E) * sizes + E * self.units.least

    @cached_property
    def beside_errors(self) -> np.ndarray:
        """The errors of dlse − δ (B, H, Q, 1), with δ = Σ dout · out or δ = Σ weights · dweights."""
        units, E, K = self.units, self.dout.shape[-1], self.errors.k.shape[2]
        out = finite(self.errors.outcome.out)
        from_out = (abs(self.dout) * (self.out + units.of_product(E) * abs(out))).sum(-1, keepdims=True)
        w, dw, moved = self.errors.weights[..., :K], abs(self.dweights), self.weight_errors[..., :K]
        terms = moved * dw + (w + moved) * self.dweight_errors + units.of_sum(self.errors.count) * w * dw
        from_weights = np.where(self.attended, terms, 0).sum(-1, keepdims=True)
        sizes = (abs(self.delta) + abs(self.dlse))[..., None]
        return np.maximum(from_out, from_weights) + units.one * sizes

    def product_errors(
        self, weights: np.ndarray, moved: np.ndarray, dweights: np.ndarray, error: np.ndarray
    ) -> np.ndarray:
        """The errors of weights · (dweights + dlse − δ), given those of the weights and of the other factor."""
        beside = self.beside[..., None]
        size = abs(dweights) + abs(beside)
        error = error + self.units.one * size
        return moved * abs(dweights + beside) + (weights + moved) * error + self.units.one * weights * size

    @cached_property
    def score_errors(self) -> dict[str, np.ndarray]:
        """The errors of the gradients of the score after each of its changes, by the names of `through`."""
        K, one = self.errors.k.shape[2], self.units.one
        w, moved = self.errors.weights[..., :K], self.weight_errors[..., :K]
        error = (
            self.product_errors(w, moved, self.dweights, self.dweight_errors + self.beside_errors) + self.units.least
        )
        error = np.where(self.attended, error, 0)
        found = {}
        for name, score, of_score in reversed(self.errors.steps):
            found[name] = error
            if name == "softcap":
                share, off = self._share(score), abs(self._share(of_score))
                slope = 1 - share**2
                of_slope = np.minimum(1, 2 * abs(share) * off + off**2 + 3 * one)
                gradient = abs(self.through[name])
                error = error * (slope + of_slope) + gradient * of_slope + one * gradient * slope
                error = np.where(self.attended, error, 0)
        return found

    def of(self, role: str) -> np.ndarray:
        """The errors of the gradient of one argument, before it is rounded to its dtype."""
        errors, units, scale = self.errors, self.units, abs(self.errors.arguments.scale)
        K = errors.k.shape[2]
        if role in ("q", "k"):
            moved, sizes = scale * self.score_errors["product"], scale * abs(self.through["product"])
            least = units.least * scale * self.attended
            if role == "q":
                k = abs(errors.k)
                return moved @ k + units.of_sum(errors.count) * (sizes @ k) + least @ k
            q = abs(errors.q)
            total = [each.swapaxes(-1, -2) @ q for each in (moved, sizes, least)]
            return self.over_rows(total, errors.key_heads, errors.call.k.shape[1])
        if role == "v":
            each = (self.weight_errors[..., :K], errors.weights[..., :K], units.least * self.attended)
            total = [part.swapaxes(-1, -2) @ abs(self.dout) for part in each]
            return self.over_rows(total, errors.value_heads, errors.call.v.shape[1])
        if role == "bias":
            assert errors.call.bias is not None
            shape = errors.call.bias.shape
            terms = np.sqrt(self.attended.size / max(np.prod(shape), 1))
            sizes = summed_over_shape(abs(self.through["bias"]), shape)
            return summed_over_shape(self.score_errors["bias"], shape) + (units.one + units.sums * terms) * sizes
        B, _, Q, _ = self.attended.shape
        w, moved = errors.weights[..., K:], self.weight_errors[..., K:]
        error = self.product_errors(w, moved, np.zeros(1), self.beside_errors)
        sizes = w * abs(self.beside[..., None])
        return (error + units.of_sum(B * Q) * sizes).sum((0, 2))[:, 0]

    def over_rows(self, total: list[np.ndarray], heads: np.ndarray, count: int) -> np.ndarray:
        """The sum over rows and heads of errors, and that of their additions, from both and the smallest numbers."""
        terms = self.attended.shape[2] * len(heads) / max(count, 1)
        moved, sizes, least = (summed_over_heads(part, heads, count) for part in total)
        return moved + self.units.of_sum(terms) * sizes + least


def gradient_bounds(
    arguments: Arguments,
    outcome: Outcome,
    call: Call,
    gradients: Mapping[str, np.ndarray],
    constants: Mapping[str, float] = CONSTANTS,
) -> dict[str, np.ndarray]:
    """How far a right implementation may be from these gradients of the law, by role.

    With P the weights, dP = dout·v, δ = Σ P dP and dS = P (dP − δ + dlse), errors reach the gradients as
    Σ (ΔP |dP − δ + dlse| + P (Δ(dP) + Δδ)) |k|, so that what cancels between dP and δ is allowed for.
    """
    last = units_of(call.dtype).one
    with np.errstate(all="ignore"):
        errors = shared(arguments, outcome, call, [constants[role] for role in gradients])
        flows = {each: GradientErrors(found, out_bound(found, last)) for each, found in errors.items()}
        found = {}
        for role, gradient in gradients.items():
            flow, size = flows[constants[role]], abs(finite(gradient))
            off = np.inf if flow.beyond else flow.of(role) * (1 + last) + last * size + flow.units.least
            found[role] = np.where(np.isnan(off) | (off + size > 0.999 * flow.units.most), np.inf, off)
        return found


def compare(got: np.ndarray, expected: np.ndarray, bound: np.ndarray) -> tuple[bool, float, tuple[int, ...]]:
    """Whether every number is right, the largest |error| / bound, and where it is.

    Infinities and NaN must be equal. A bound of ∞ allows anything, one of 0 only the expected number.
    """
    got = np.asarray(got, np.float64)
    if got.shape != expected.shape:
        return False, np.inf, ()
    if not got.size:
        return True, 0.0, ()
    with np.errstate(all="ignore"):
        error = abs(got - expected)
        ratio = np.where(np.isnan(bound), np.inf, error / bound)
    ratio = np.where(np.isfinite(expected) & np.isfinite(got), ratio, np.inf)
    ratio[(bound == np.inf) | (got == expected) | (np.isnan(got) & np.isnan(expected))] = 0
    at = np.unravel_index(int(ratio.argmax()), ratio.shape)
    return bool(ratio[at] <= 1), float(ratio[at]), tuple(int(i) for i in at)
