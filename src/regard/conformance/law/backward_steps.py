"""The steps of the law's gradients, each a function that a known mistake may replace."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

Array = np.ndarray


def through_softmax(weights: Array, dweights: Array, delta: Array, dlse: Array) -> Array:
    """dS = P ∘ (dP − δ + dlse), with δ and dlse (B, H, Q)."""
    return weights * (dweights + (dlse - delta)[..., None])


def only_allowed(gradient: Array, allowed: Array) -> Array:
    """0 for masked pairs, whatever their numbers are."""
    return np.where(allowed, gradient, 0)


def times_scale(gradient: Array, scale: float) -> Array:
    """The gradient of q·k, from that of scale · q·k."""
    return scale * gradient


def summed_over_heads(gradient: Array, heads: Array, given: int) -> Array:
    """The gradient (B, given, K, depth) of the given heads: the sum over the query heads that use each."""
    found = np.zeros((gradient.shape[0], given, *gradient.shape[2:]))
    for number, head in enumerate(heads):
        found[:, head] += gradient[:, number]
    return found


def as_weights(weights: Array) -> Array:
    """The weights that multiply dout to give the gradient of v."""
    return weights


def through_score(gradient: Array, partial: Array) -> Array:
    """The gradient of the scaled logit, from that of the score and the derivative of the score expression."""
    return gradient * partial


def summed_over_shape(gradient: Array, shape: tuple[int, ...]) -> Array:
    """The gradient of an array of this shape that was broadcast: the sum over its axes of size 1."""
    axes = tuple(axis for axis, size in enumerate(shape) if size == 1 and gradient.shape[axis] != 1)
    return gradient.sum(axes, keepdims=True) if axes else gradient


def of_sinks(shares: Array, delta: Array, dlse: Array) -> Array:
    """The gradient (H,) of the sinks, from their shares (B, H, Q) of the denominator."""
    return (shares * (dlse - delta)).sum((0, 2))


def unchanged(gradients: dict[str, Array]) -> dict[str, Array]:
    """The gradients as they are."""
    return gradients


@dataclass(frozen=True, eq=False, kw_only=True)
class BackwardSteps:
    """The steps of the backward pass, in order."""

    through_softmax: Callable[[Array, Array, Array, Array], Array] = through_softmax
    only_allowed: Callable[[Array, Array], Array] = only_allowed
    through_score: Callable[[Array, Array], Array] = through_score
    times_scale: Callable[[Array, float], Array] = times_scale
    as_weights: Callable[[Array], Array] = as_weights
    summed_over_heads: Callable[[Array, Array, int], Array] = summed_over_heads
    summed_over_shape: Callable[[Array, tuple[int, ...]], Array] = summed_over_shape
    of_sinks: Callable[[Array, Array, Array], Array] = of_sinks
    finish: Callable[[dict[str, Array]], dict[str, Array]] = unchanged
