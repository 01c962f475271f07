"""Whether a call needs float64, so that rounding changes weights by less than their codes do."""

from __future__ import annotations

import numpy as np

from .codes import FINE_ERROR

# A weight is exp(score − lse): a relative error ε of either moves it by ε · |score|.
LARGE = FINE_ERROR / 2 / float(np.finfo(np.float32).eps)  # about 450


def too_large(q: np.ndarray, k: np.ndarray, scale: float, lse: np.ndarray | None = None) -> bool:
    """Whether float32 is too coarse for a call: the bound scale ‖q‖ ‖k‖ of its scores, or its lse, exceeds 450.

    False if q and k are float64 already.

    >>> too_large(np.ones((1, 2, 4), np.float32), np.ones((1, 2, 4), np.float32), 1.0, np.array([[-np.inf, 1e5]]))
    True
    """
    if q.dtype == k.dtype == np.float64:
        return False
    below = 0.0 if lse is None else np.where(np.isfinite(lse), np.abs(lse), 0).max(initial=0)
    return bool(below > LARGE or abs(scale) * _longest(q) * _longest(k) > LARGE)


def _longest(vectors: np.ndarray) -> float:
    plain = vectors.astype(np.float32, copy=False)
    with np.errstate(all="ignore"):
        return float(np.sqrt(np.einsum("hid,hid->hi", plain, plain).max(initial=0)))
