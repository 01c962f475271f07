"""Whether a matrix product of a model gives its q, k, v or layer output: decided by comparison, never by names."""

from __future__ import annotations

import numpy as np

from .layer import Projection

ROWS = 64  # the most rows that are compared
WIDE = 2.0**-24  # 16-bit products are summed in float32


def heads_from(x: np.ndarray, product: Projection, heads: np.ndarray, unit: float) -> Projection | None:
    """The rows of the matrix that give these heads, or None if it gives other numbers.

    x (Q, M) · product.w (N, M) · heads (H, Q, D) · unit: the rounding unit of the model's dtype. A matrix may compute
    q, k and v at once; the D rows of a head are next to each other and start at a multiple of D.
    """
    (H, Q, D), N = heads.shape, len(product.w)
    if product.w.shape[1] != x.shape[-1] or len(x) != Q or N < D or not Q:
        return None
    some = _some(Q)
    y, most = product.of(x[some]), rounding(x[some], product, unit)
    blocks = N // D
    y, most = (each[:, : blocks * D].reshape(len(some), blocks, D) for each in (y, most))
    found = []
    for head in np.asarray(heads[:, some], np.float64):
        with np.errstate(invalid="ignore"):
            near = (np.abs(y - head[:, None]) <= most).all((0, 2))
        if not near.any():
            return None
        found.append(int(near.argmax()))
    rows = (np.array(found)[:, None] * D + np.arange(D)).ravel()
    if np.array_equal(rows, np.arange(N)):
        rows = slice(None)  # the matrix itself, not a copy
    b = None if product.b is None else product.b[rows].reshape(H, D)
    return Projection(product.w[rows].reshape(H, D, -1), b)


def equal(y: np.ndarray, x: np.ndarray, product: Projection, unit: float) -> bool:
    """Whether y (Q, N) is the product of x (Q, M), within the rounding of the model's dtype."""
    some = _some(len(x))
    with np.errstate(invalid="ignore"):
        return bool((np.abs(product.of(x[some]) - y[some]) <= rounding(x[some], product, unit)).all())


def rounding(x: np.ndarray, product: Projection, unit: float) -> np.ndarray:
    """The largest error of w x + b in floating point, (Q, N).

    |error| ≤ M u Σ |w| |x| + 2 v (|y| + |b|), where u is the unit of the sum, at most that of float32, and v that of
    the results. Source: Higham 2002, section 3.1.
    """
    w = np.abs(np.asarray(product.w, np.float64))
    b = np.zeros(len(w)) if product.b is None else np.abs(np.asarray(product.b, np.float64))
    whole = np.abs(np.asarray(x, np.float64)) @ w.T
    return (w.shape[1] + 1) * min(unit, WIDE) * (whole + b) + 2 * unit * (np.abs(product.of(x)) + b)


def _some(count: int) -> np.ndarray:
    """The positions of at most `ROWS` rows, evenly spaced."""
    few = min(count, ROWS)
    return np.arange(few) * count // max(few, 1)
