"""Bounds on rounding, for each element of a result, from the conditioning of the call: where numbers cancel, more
error is allowed, and elsewhere less.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np

from .arguments import Arguments
from .backward import backward
from .call import Call
from .forward import Outcome
from .gradient_errors import GradientErrors
from .rounding import Rounding, finite, units_of

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
    return np.where(np.isneginf(errors.outcome.lse), 0, found)


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


def gradient_bounds(
    arguments: Arguments, outcome: Outcome, call: Call, constants: Mapping[str, float] = CONSTANTS
) -> dict[str, np.ndarray]:
    """The largest errors of the gradients of a right implementation, by role and in the shapes of `backward`.

    With P the weights, dP = dout·v, δ = Σ P dP and dS = P (dP − δ + dlse), errors reach the gradients as
    Σ (ΔP |dP − δ + dlse| + P (Δ(dP) + Δδ)) |k|, so that what cancels between dP and δ is allowed for.
    """
    assert call.dout is not None
    gradients = backward(arguments, call.q, call.k, call.v, call.dout, call.dlse)
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
    ratio[np.isposinf(bound) | (got == expected) | (np.isnan(got) & np.isnan(expected))] = 0
    at = np.unravel_index(int(ratio.argmax()), ratio.shape)
    return bool(ratio[at] <= 1), float(ratio[at]), tuple(int(i) for i in at)
