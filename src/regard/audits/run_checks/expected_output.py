"""The expected output of a recorded call, computed in float64 on some of its rows, with a bound on rounding errors."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from ...conformance.law.arguments import ToWeights, masked_softmax
from ...lens import Call

ELEMENTS = 1 << 18  # weights computed together
FLOAT32 = 2.0**-24  # the rounding error of sums, which are computed in float32 for 16-bit numbers too
FIRST_ROWS = 8  # always read: a mask that is off by one has the largest effect there


class Expected(NamedTuple):
    """out (H, R, E): the expected output · noise (H, R, E): the rounding error that the same computation in the dtype
    of the call may have · comparable (H, R): rows that are finite and not fully masked; implementations differ on all
    others.
    """

    out: np.ndarray
    noise: np.ndarray
    comparable: np.ndarray


def roundoff(call: Call) -> float:
    """The unit roundoff of the coarsest dtype of the call; float64 counts as float32, because models compute their
    softmax in float32 even then.

    >>> one = np.ones((1, 1, 1))
    >>> 1 / roundoff(Call("one", 0, "keys", "keys", np.zeros((1, 1)), q=one.astype(np.float16), k=one))
    2048.0
    """
    return max(FLOAT32, *(unit(name) for name in _dtypes(call)))


def unit(dtype: Any) -> float:
    """The unit roundoff (largest relative rounding error) of a dtype; 0 for integers and for unknown names."""
    info = _finfo(dtype)
    return float(info.eps) / 2 if info is not None else 0.0


def _dtypes(call: Call) -> Iterator[str]:
    yield from (str(array.dtype) for array in (call.q, call.v, call.out) if array is not None)
    yield str(call.notes.get("dtype", "float64")).removeprefix("torch.")


def _finfo(dtype: Any) -> Any:
    """The `finfo` of a floating-point dtype; None for anything else."""
    import ml_dtypes

    try:
        return ml_dtypes.finfo(dtype)
    except (TypeError, ValueError):
        return None


def _smallest(call: Call) -> float:
    """The smallest positive number of the coarsest dtype of the call, below which values are lost. At least 2⁻¹²⁶,
    because float32 may flush smaller ones to 0.
    """
    return max(
        [
            2.0**-126,
            *(float(info.smallest_subnormal) for name in _dtypes(call) if (info := _finfo(name)) is not None),
        ]
    )


def rows_to_read(call: Call) -> np.ndarray:
    """The rows that checks read: the first ones, and as many evenly spaced ones as fit into `ELEMENTS` weights."""
    H, Q, K = call.shape
    count = min(Q, max(FIRST_ROWS, ELEMENTS // max(1, H * K)))
    spread = np.linspace(0, Q - 1, max(1, count)).round().astype(int) if Q else np.zeros(0, int)
    return spread if count == Q else np.unique(np.concatenate([np.arange(min(FIRST_ROWS, Q)), spread]))


def expected_output(
    call: Call, rows: np.ndarray, heads: np.ndarray, to_weights: ToWeights = masked_softmax
) -> Expected:
    """The output that follows from q, k, v and the arguments of the call, or from its weights and v, in float64.

    The noise is a first-order bound on the rounding errors of one pass in the dtype of the call: of each score, of each
    weight, and of the sum.
    """
    assert call.v is not None
    u, K = roundoff(call), call.shape[2]
    v = np.asarray(call.v[heads // (call.shape[0] // len(call.v))], np.float64)
    with np.errstate(all="ignore"):
        weights, off, attends = _weights(call, rows, heads, to_weights)
        out = weights @ v
        size = np.abs(weights)  # the weights of a mistake may be negative
        off = np.where(size > 0, off, 0)
        summed = 4 * (math.sqrt(K) + 1) * min(u, FLOAT32)
        grown = np.expm1(off + (size * off).sum(-1, keepdims=True)) + 4 * u + summed
        smallest = _smallest(call)
        noise = (size * grown + smallest) @ np.abs(v) + 2 * u * np.abs(out) + smallest
    return Expected(out, noise, attends & np.isfinite(out).all(-1) & np.isfinite(weights).all(-1))


def _weights(
    call: Call, rows: np.ndarray, heads: np.ndarray, to_weights: ToWeights
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(weights, possible errors of their scores, rows that are not fully masked)."""
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
    off = 4 * u * (np.abs(logits) + np.abs(scores)) + 4 * (math.sqrt(D) + 1) * min(u, FLOAT32) * abs(call.scale) * (
        q @ k.swapaxes(1, 2)
    )
    attends = np.asarray(allowed.any(-1)) if sinks is None else np.ones(allowed.shape[:2], bool)
    return to_weights(scores, allowed, sinks), off, attends
