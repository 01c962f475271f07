"""The steps of the law in float64 NumPy, each a function that a known mistake may replace.

Arrays are (B, H, Q, K) for scores and weights, (B, heads, rows, depth) for the others; the first axis may be missing.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

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


def masked_softmax(scores: Array, allowed: Array, sinks: Array | None) -> Array:
    """The softmax over allowed keys and sinks; 0 in fully masked rows. A masked NaN has no effect."""
    with np.errstate(all="ignore"):
        kept = np.where(allowed, scores, -np.inf)
        top = kept.max(-1, initial=-np.inf, keepdims=True)
        if sinks is not None:
            top = np.maximum(top, sinks.max(-1)[:, None, None])
        shift = np.where(np.isneginf(top), 0, top)
        powers = np.exp(kept - shift)
        total = powers.sum(-1, keepdims=True)
        if sinks is not None:
            total = total + np.exp(sinks[:, None, :] - shift).sum(-1, keepdims=True)
        return np.where(np.isneginf(kept), 0, powers / np.where(total == 0, 1, total))


def weighted_sum(weights: Array, allowed: Array, k: Array, v: Array) -> Array:
    """weights @ v, where NaN and infinities of v reach only the rows that attend to them."""
    attended = allowed & ~(weights == 0) if weights.shape == allowed.shape else weights != 0
    with np.errstate(all="ignore"):
        out = weights @ np.where(np.isfinite(v), v, 0)
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
        shift = np.where(np.isneginf(top), 0, top)
        return shift + np.log(np.exp(kept - shift[..., None]).sum(-1))


def as_it_is(out: Array) -> Array:
    """The output as it is."""
    return out


def nothing(q: Array, v: Array) -> float:
    """Nothing is added to the output."""
    return 0.0
