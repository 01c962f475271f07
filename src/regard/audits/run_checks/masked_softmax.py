"""The masked softmax: how scores become weights."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

__all__ = ["ToWeights", "masked_softmax"]

# (scores (H, R, K), allowed (H, R, K), sinks (H, S) or None) -> weights (H, R, K)
ToWeights = Callable[[np.ndarray, np.ndarray, np.ndarray | None], np.ndarray]


def masked_softmax(scores: np.ndarray, allowed: np.ndarray, sinks: np.ndarray | None) -> np.ndarray:
    """The softmax over allowed keys and sinks; NaN in fully masked rows."""
    with np.errstate(all="ignore"):
        kept = np.where(allowed, scores, -np.inf)
        top = kept.max(-1, initial=-np.inf, keepdims=True)
        if sinks is not None:
            top = np.maximum(top, sinks.max(-1)[:, None, None])
        weights = np.exp(kept - top)
        total = weights.sum(-1, keepdims=True)
        if sinks is not None:
            total = total + np.where(np.isneginf(top), 0, np.exp(sinks[:, None, :] - top)).sum(-1, keepdims=True)
        return weights / total
