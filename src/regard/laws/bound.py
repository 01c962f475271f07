"""Bounds on rounding, for each element of a result, from the conditioning of the call: where numbers cancel, more
error is allowed, and elsewhere less.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import NamedTuple

import numpy as np

from .arguments import Arguments, summed_over_heads, summed_over_shape
from .call import Call
from .forward import Outcome
from .rounding import Rounding, Units, finite, units_of

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
    with np.errstate(all="ignore"):
        return Bounds(
            out_bound(errors[constants["out"]], last),
            lse_bound(errors[constants["lse"]], last),
            weights_bound(errors[constants["weights"]], last),
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


def lse_bound(errors: Rounding, last: float) -> np.ndarray:
    """The bound of lse."""
    found = within_range(errors.lse_errors[..., None], errors.outcome.lse[..., None], last, errors)[..., 0]
    return np.where(errors.outcome.lse == -np.inf, 0, found)


def weights_bound(errors: Rounding, last: float) -> np.ndarray:
    """The bound of the weights."""
    K = errors.k.shape[2]
    found = errors.weight_errors[..., :K]
    found = np.where(errors.count == 0, errors.units.of_sum(K) / max(K, 1), found)
    return within_range(found, errors.outcome.weights, last, errors)


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
        return {role: gradient_bound(role, flows[constants[role]], last, each) for role, each in gradients.items()}


def gradient_bound(role: str, errors: GradientErrors, last: float, gradient: np.ndarray) -> np.ndarray:
    """The bound of the gradient of an argument; last: the unit of its own rounding."""
    size, units = abs(finite(gradient)), errors.units
    if errors.beyond:
        return np.full_like(size, np.inf)
    found = errors.of(role) * (1 + last) + last * size + units.least
    return np.where(np.isnan(found) | (found + size > 0.999 * units.most), np.inf, found)


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
