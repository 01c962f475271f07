"""Weights as one or two bytes each: logarithmic codes with a known relative error, and codes for invalid weights.

    0 masked · 1 exactly 0 · 2 not a number · 3 below 10⁻⁶ · 4 out of range (below 0, above 1) · 5 weight on a masked
    key · 6 … 255 the weight 10^(6·(code − 6)/249 − 6), so that 1 is exact

An optional second byte divides each step by 256, and has the three digits of the weight in percent; with code 5 it is
the code of the forbidden weight.
"""

from __future__ import annotations

import base64
import zlib

import numpy as np

MASKED, ZERO, NAN, TINY, OUT, LEAK, FIRST = range(7)
DECADES, STEPS = 6, 249
COARSE_ERROR = 10 ** (DECADES / STEPS * (0.5 + 1 / 256)) - 1  # relative: 2.8 %
FINE_ERROR = 10 ** (DECADES / STEPS / 256) - 1  # relative: 0.022 %; half of it if the nearest code has the digits
ERROR = "0.03 %"  # this bound as text, rounded up
ABOVE = 1 + 1e-3  # rounding of 16-bit weights stays below this


def encode(
    weights: np.ndarray, allowed: np.ndarray | None = None, worst: np.ndarray | int | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """(coarse, fine) uint8 codes of weights; allowed: where the mask allows weight, everywhere by default.

    worst: for cells that pool several weights, the code of an invalid weight among them (see `wrong`), which takes
    precedence, or 0. Pooled cells may exceed 1, since a row of 16-bit weights may sum to more than 1.

    >>> attended = np.array([False, True, True, True, True, True, True])
    >>> codes = encode(np.array([0.0, 0.0, 1e-6, 1.0, 0.5, np.nan, 2.0]), attended)
    >>> codes[0].tolist(), decode(*codes)[2:5].round(4).tolist()
    ([0, 1, 6, 255, 243, 2, 4], [0.0, 1.0, 0.5])
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        log = np.log10(np.minimum(weights, 1))
        x = (log / DECADES + 1) * STEPS * 256
        plain = x >= -128
        fixed = np.rint(x)
        digit = 10 ** (np.floor(log) - 2)
        other = np.rint(weights / digit) != np.rint(10 ** ((fixed / 256 / STEPS - 1) * DECADES) / digit)
        fixed = np.where(plain, fixed + other * np.sign(x - fixed), 0).astype(np.int32) + 128
        coarse = np.where(plain, (fixed >> 8) + FIRST, np.where(weights == 0, ZERO, TINY))
        out = (weights < 0) | (weights > (ABOVE if worst is None else np.inf))
        coarse = np.where(out, OUT, np.where(np.isnan(weights), NAN, coarse))
    if allowed is not None:
        coarse = np.where(allowed, coarse, np.where(coarse == ZERO, MASKED, np.where(coarse >= TINY, LEAK, coarse)))
    coarse = coarse if worst is None else np.where(worst, worst, coarse)
    forbidden = np.where(plain, (fixed >> 8) + FIRST, TINY)
    return coarse.astype(np.uint8), np.where(coarse == LEAK, forbidden, fixed & 255).astype(np.uint8)


def wrong(weights: np.ndarray, allowed: np.ndarray) -> np.ndarray | None:
    """The codes of weights that are NaN, out of range or on masked keys, 0 elsewhere; None if there are none."""
    within = weights.min() >= 0 and weights.max() <= ABOVE  # False for NaN
    if within and (allowed.all() or not weights[~allowed].any()):
        return None
    found = encode(weights, allowed)[0]
    return np.where(np.isin(found, (NAN, OUT, LEAK)), found, 0).astype(np.uint8)


def decode(coarse: np.ndarray, fine: np.ndarray | None = None) -> np.ndarray:
    """The weights of the codes: 0 for masked, zero and tiny ones, NaN for invalid ones."""
    if fine is not None and (leaks := coarse == LEAK).any():
        return np.where(leaks, decode(fine), decode(np.where(leaks, MASKED, coarse), fine))
    x = coarse.astype(float) - FIRST + (0 if fine is None else (fine.astype(float) - 128) / 256)
    found = 10 ** ((x / STEPS - 1) * DECADES)
    return np.where(coarse >= FIRST, found, np.where(np.isin(coarse, (NAN, OUT, LEAK)), np.nan, 0))


def packed(raw: bytes) -> str:
    """Bytes, deflated, as base64: ASCII text of A–Z, a–z, 0–9, +, / and =."""
    return base64.b64encode(zlib.compress(raw, 6)).decode()


# A weight is exp(score − lse): a relative error ε of either moves it by ε · |score|.
LARGE = FINE_ERROR / 4 / float(np.finfo(np.float32).eps)  # about 450


def too_large(q: np.ndarray, k: np.ndarray, scale: float, lse: np.ndarray | None = None) -> bool:
    """Whether float32 is too coarse for a call: the bound scale ‖q‖ ‖k‖ of its scores, or its lse, exceeds 450.

    False if q and k are float64 already.

    >>> too_large(np.ones((1, 2, 4), np.float32), np.ones((1, 2, 4), np.float32), 1.0, np.array([[-np.inf, 1e5]]))
    True
    """
    if q.dtype == k.dtype == np.float64:
        return False
    below = 0.0 if lse is None else np.where(np.isfinite(lse), np.abs(lse), 0).max(initial=0)
    return bool(below > LARGE or abs(scale) * longest(q) * longest(k) > LARGE)


def longest(vectors: np.ndarray) -> float:
    """The largest length of the vectors (H, rows, D)."""
    plain = vectors.astype(np.float32, copy=False)
    with np.errstate(all="ignore"):
        return float(np.sqrt(np.einsum("hid,hid->hi", plain, plain).max(initial=0)))
