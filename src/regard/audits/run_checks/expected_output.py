"""The output that follows from what a call was told, on some of its rows, and how far rounding may move it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from ...lens import Call
from .weighing import Weigh, normalised

__all__ = ["Answer", "answer", "roundoff", "rows_to_read", "unit"]

ELEMENTS = 1 << 18  # weights computed at once
SUMMED = 2.0**-24  # the rounding of sums, which are made in float32 for 16-bit numbers too
EARLY = 8  # rows at the top are always read: there a mask that is off by one shows most


class Answer(NamedTuple):
    """out (H, R, E): what follows · noise (H, R, E): how far the same computation in the call's dtype may err · sure
    (H, R): rows that attend something and are finite, the only ones of which all implementations say the same.
    """

    out: np.ndarray
    noise: np.ndarray
    sure: np.ndarray


def roundoff(call: Call) -> float:
    """The largest relative error of rounding once in the coarsest dtype of the call; float64 counts as float32, because
    models make their softmax in float32 even then.

    >>> one = np.ones((1, 1, 1))
    >>> 1 / roundoff(Call("one", 0, "keys", "keys", np.zeros((1, 1)), q=one.astype(np.float16), k=one))
    2048.0
    """
    return max(SUMMED, *(unit(name) for name in _dtypes(call)))


def unit(dtype: Any) -> float:
    """The largest relative error of rounding once to a dtype; 0 for whole numbers, and for a name that is no dtype of
    floats.
    """
    found = _format(dtype)
    return float(found.eps) / 2 if found is not None else 0.0


def _dtypes(call: Call) -> Iterator[str]:
    yield from (str(array.dtype) for array in (call.q, call.v, call.out) if array is not None)
    yield str(call.notes.get("dtype", "float64")).removeprefix("torch.")


def _format(dtype: Any) -> Any:
    """What is known of a dtype of floats; None for any other."""
    import ml_dtypes

    try:
        return ml_dtypes.finfo(dtype)
    except (TypeError, ValueError):
        return None


def _least(call: Call) -> float:
    """The least step of the coarsest dtype of the call: what is smaller is lost. Below 2⁻¹²⁶ float32 may flush to 0."""
    return max(
        [
            2.0**-126,
            *(float(found.smallest_subnormal) for name in _dtypes(call) if (found := _format(name)) is not None),
        ]
    )


def rows_to_read(call: Call) -> np.ndarray:
    """The first rows, and as many evenly spread to the last as one look can take."""
    H, Q, K = call.shape
    count = min(Q, max(EARLY, ELEMENTS // max(1, H * K)))
    spread = np.linspace(0, Q - 1, max(1, count)).round().astype(int) if Q else np.zeros(0, int)
    return spread if count == Q else np.unique(np.concatenate([np.arange(min(EARLY, Q)), spread]))


def answer(call: Call, rows: np.ndarray, heads: np.ndarray, weigh: Weigh = normalised) -> Answer:
    """What follows from q, k, v and the rules of the call, or from its weights and v, computed in float64.

    The noise bounds, to first order, what one pass in the call's dtype may add: to each score, to each weight, and to
    the sum.
    """
    assert call.v is not None
    u, K = roundoff(call), call.shape[2]
    v = np.asarray(call.v[heads // (call.shape[0] // len(call.v))], np.float64)
    with np.errstate(all="ignore"):
        weights, off, seen = _weighed(call, rows, heads, weigh)
        out = weights @ v
        off = np.where(weights > 0, off, 0)
        grown = np.expm1(off + (weights * off).sum(-1, keepdims=True)) + 4 * u + 4 * (math.sqrt(K) + 1) * min(u, SUMMED)
        least = _least(call)
        noise = (weights * grown + least) @ np.abs(v) + 2 * u * np.abs(out) + least
    return Answer(out, noise, seen & np.isfinite(out).all(-1) & np.isfinite(weights).all(-1))


def _weighed(
    call: Call, rows: np.ndarray, heads: np.ndarray, weigh: Weigh
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(weights, how far their scores may be off, rows that attend something)."""
    allowed = call.allowed(rows, None, heads)
    if call.given is not None:
        weights = call.weights(rows, None, heads)
        return weights, np.zeros_like(weights), np.asarray(allowed.any(-1))
    assert call.q is not None and call.k is not None
    u, D = roundoff(call), call.q.shape[2]
    logits = call.logits(rows, None, heads)
    scores = logits if call.score is None else call.scores(rows, None, heads)
    sinks = None if call.sinks is None else np.asarray(call.sinks[heads], np.float64)
    q, k = (
        np.abs(np.asarray(part, np.float64))
        for part in (call.q[heads][:, rows], call.k[heads // (call.shape[0] // call.groups)])
    )
    off = 4 * u * (np.abs(logits) + np.abs(scores)) + 4 * (math.sqrt(D) + 1) * min(u, SUMMED) * abs(call.scale) * (
        q @ k.swapaxes(1, 2)
    )
    seen = np.asarray(allowed.any(-1)) if sinks is None else np.ones(allowed.shape[:2], bool)
    return weigh(scores, allowed, sinks), off, seen
