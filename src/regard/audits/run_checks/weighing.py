"""How scores become weights: a softmax over the keys that may be attended."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

__all__ = ["Weigh", "normalised"]

# How scores (H, R, K), what may be attended (H, R, K) and sinks (H, S) or None become weights.
Weigh = Callable[[np.ndarray, np.ndarray, np.ndarray | None], np.ndarray]


def normalised(scores: np.ndarray, allowed: np.ndarray, sinks: np.ndarray | None) -> np.ndarray:
    """The softmax over allowed keys and sinks; NaN where nothing is allowed."""
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
