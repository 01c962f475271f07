"""What one call of attention means: its rules as expressions, and the steps of the law as functions. A known mistake is
a change of these.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, reduce
from operator import and_
from typing import Any

import numpy as np

from ..language.analysis import substituted
from ..language.expr import Expr
from ..language.expr import score as the_score

Array = np.ndarray
Inputs = Callable[[Array, Array, Array], tuple[Array, Array, Array]]  # q, k, v -> those that are used
Product = Callable[[Array, Array], Array]  # q, k of each query head -> the product at every pair
ToWeights = Callable[[Array, Array, Array | None], Array]  # scores, allowed, sinks (H, S) -> weights
ToOutput = Callable[[Array, Array, Array, Array], Array]  # weights, allowed, k, v of each query head -> out
ToLse = Callable[[Array, Array, Array | None], Array]  # scores, allowed, sinks -> lse (B, H, Q)
Finish = Callable[[Array], Array]  # out -> the result
Added = Callable[[Array, Array], Array | float]  # q, v of each query head -> what is added to the result


def same_inputs(q: Array, k: Array, v: Array) -> tuple[Array, Array, Array]:
    """The inputs as they are."""
    return q, k, v


def product(q: Array, k: Array) -> Array:
    """q·k at every pair."""
    return q @ k.swapaxes(-1, -2)


def highest(kept: Array, sinks: Array | None) -> Array:
    """The largest number of each row of scores, −∞ where masked, and its sinks, (B, H, Q, 1)."""
    top = kept.max(-1, initial=-np.inf, keepdims=True)
    return top if sinks is None else np.maximum(top, sinks.max(-1)[:, None, None])


def masked_softmax(scores: Array, allowed: Array, sinks: Array | None) -> Array:
    """The softmax over allowed keys and sinks; 0 in fully masked rows. A masked NaN has no effect."""
    with np.errstate(all="ignore"):
        kept = np.where(allowed, scores, -np.inf)
        top = highest(kept, sinks)
        shift = np.where(top == -np.inf, 0, top)
        powers = np.exp(kept - shift)
        total = powers.sum(-1, keepdims=True)
        if sinks is not None:
            total = total + np.exp(sinks[:, None, :] - shift).sum(-1, keepdims=True)
        return np.where(kept == -np.inf, 0, powers / np.where(total == 0, 1, total))


def weighted_sum(weights: Array, allowed: Array, k: Array, v: Array) -> Array:
    """weights @ v, where NaN and infinities of v reach only the rows that attend to them."""
    finite = np.isfinite(v)
    with np.errstate(all="ignore"):
        out = weights @ np.where(finite, v, 0)
        if finite.all():
            return out
        attended = allowed & ~(weights == 0) if weights.shape == allowed.shape else weights != 0
        for bad, here in ((np.inf, v == np.inf), (-np.inf, v == -np.inf), (np.nan, np.isnan(v))):
            if here.any():
                out = out + np.where(attended.astype(np.float64) @ here > 0, bad, 0)
    return out


def lse(scores: Array, allowed: Array, sinks: Array | None) -> Array:
    """ln(Σ exp(score) + Σ exp(sink)) over allowed keys; −inf if there are none."""
    with np.errstate(all="ignore"):
        kept = np.where(allowed, scores, -np.inf)
        if sinks is not None:
            more = np.broadcast_to(sinks[:, None, :], (*kept.shape[:-1], sinks.shape[-1]))
            kept = np.concatenate([kept, more], -1)
        top = kept.max(-1, initial=-np.inf)
        shift = np.where(top == -np.inf, 0, top)
        return shift + np.log(np.exp(kept - shift[..., None]).sum(-1))


def unchanged(value: Any) -> Any:
    """The output, the gradients, or the weights that multiply dout to give the gradient of v, as they are."""
    return value


def nothing(q: Array, v: Array) -> float:
    """Nothing is added to the output."""
    return 0.0


def through_softmax(weights: Array, dweights: Array, delta: Array, dlse: Array) -> Array:
    """dS = P ∘ (dP − δ + dlse), with δ and dlse (B, H, Q)."""
    return weights * (dweights + (dlse - delta)[..., None])


def only_allowed(gradient: Array, allowed: Array) -> Array:
    """0 for masked pairs, whatever their numbers are."""
    return np.where(allowed, gradient, 0)


def times_scale(gradient: Array, scale: float) -> Array:
    """The gradient of q·k, from that of scale · q·k."""
    return scale * gradient


def heads_of(heads: Array, count: int) -> Array:
    """The key or value head that each of `count` query heads uses."""
    return np.repeat(heads, count // max(len(heads), 1))


def summed_over_heads(gradient: Array, heads: Array, given: int) -> Array:
    """The gradient (B, given, K, depth) of the given heads: the sum over the query heads that use each."""
    found = np.zeros((gradient.shape[0], given, *gradient.shape[2:]))
    for number, head in enumerate(heads):
        found[:, head] += gradient[:, number]
    return found


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


@dataclass(frozen=True, eq=False, kw_only=True)
class BackwardSteps:
    """The steps of the backward pass, in order."""

    through_softmax: Callable[[Array, Array, Array, Array], Array] = through_softmax
    only_allowed: Callable[[Array, Array], Array] = only_allowed
    through_score: Callable[[Array, Array], Array] = through_score
    times_scale: Callable[[Array, float], Array] = times_scale
    as_weights: Callable[[Array], Array] = unchanged
    summed_over_heads: Callable[[Array, Array, int], Array] = summed_over_heads
    summed_over_shape: Callable[[Array, tuple[int, ...]], Array] = summed_over_shape
    of_sinks: Callable[[Array, Array, Array], Array] = of_sinks
    finish: Callable[[dict[str, Array]], dict[str, Array]] = unchanged


@dataclass(frozen=True, eq=False, kw_only=True)
class Arguments:
    """out = weights(score(scale · q·k), mask) · v, for one call.

    masks: conditions by the name of the argument that they come from ("mask", "causal", "window", "lengths"; "rule" for
    everything together, where only that is known); a pair is allowed if all are true · scores: changes of the score by
    name ("softcap", "bias"), applied in order · start: the position of row 0 on the key axis · sinks (H, S) · heads,
    queries, keys, depth: sizes of q and k · key_heads, value_heads (H or G,): the number of the given key or value head
    that each head uses · real: the dtype of sums, outside of whose range numbers are infinite or 0 · the other fields
    are the steps; `recomputed` changes the arguments with which a backward pass computes the weights again
    """

    masks: Mapping[str, Expr] = field(default_factory=dict)
    scores: Mapping[str, Expr] = field(default_factory=dict)
    scale: float
    start: int
    sinks: np.ndarray | None = None
    heads: int
    queries: int
    keys: int
    depth: int
    key_heads: np.ndarray
    value_heads: np.ndarray
    real: type = np.float32
    inputs: Inputs = same_inputs
    product: Product = product
    to_weights: ToWeights = masked_softmax
    to_output: ToOutput = weighted_sum
    to_lse: ToLse = lse
    finish: Finish = unchanged
    added: Added = nothing
    backward: BackwardSteps = field(default_factory=BackwardSteps)
    recomputed: Callable[[Arguments], Arguments] | None = None

    @property
    def groups(self) -> int:
        """The number of key heads."""
        return len(self.key_heads)

    @cached_property
    def mask(self) -> Expr | None:
        """The condition for a pair to be allowed; None if every pair is."""
        return reduce(and_, self.masks.values()) if self.masks else None

    @cached_property
    def score(self) -> Expr | None:
        """The score as an expression of scale · q·k; None if nothing changes it."""
        found: Expr | None = None
        for change in self.scores.values():
            found = change if found is None else substituted(change, {the_score: found})
        return found
