"""The matrices of one attention layer, as far as they are known."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

NAMES = ("q", "k", "v", "o")
LATER = "a later pass of generation does not multiply the outputs of all heads by it"


@dataclass(frozen=True, eq=False)
class Projection:
    """A matrix product of a layer, w x + b for each row x.

    Args:
        w: (N, M) or, for the heads of q, k and v, (H, D, M): one row of M numbers for each element of the result.
        b: (N,) or (H, D) the bias, or None if the model has none.

    Examples:
        >>> import numpy as np
        >>> Projection(np.ones((2, 3)), None).of(np.arange(3))
        array([3., 3.])
    """

    w: np.ndarray
    b: np.ndarray | None

    def of(self, x: np.ndarray) -> np.ndarray:
        """w x + b in float64, (…, N) for x (…, M); of heads, (…, H, D)."""
        w = np.asarray(self.w, np.float64)
        y = np.asarray(x, np.float64) @ w.reshape(-1, w.shape[-1]).T
        y = y.reshape(*y.shape[:-1], *w.shape[:-1])
        return y if self.b is None else y + np.asarray(self.b, np.float64)

    def copied(self) -> Projection:
        """The same numbers in memory of their own, since a model may be trained further; files are read-only."""

        def held(part: np.ndarray) -> np.ndarray:
            return part.copy() if part.flags.writeable else part

        return Projection(held(self.w), None if self.b is None else held(self.b))

    @property
    def nbytes(self) -> int:
        """The bytes of the matrix and of its bias."""
        return self.w.nbytes + (0 if self.b is None else self.b.nbytes)


@dataclass(frozen=True, eq=False)
class LayerProjections:
    """The matrices of an attention layer; None where a matrix is not known.

    q = W_q x + b_q, k = W_k x + b_k and v = W_v x + b_v for the input x of the layer; y = W_o c + b_o for the outputs c
    of all heads, one after another.

    Args:
        q: W_q (H, D, d_model) and b_q (H, D).
        k: W_k (G, D, d_model) and b_k (G, D).
        v: W_v (G, E, d_model) and b_v (G, E).
        o: W_o (d_model, H · E) and b_o (d_model).
        y: (Q, d_model) the product with W_o that the model itself computed, if o is known.
        missing: why a matrix is not known, by its name: q, k, v or o.
        rotated: W_q and W_k, by name, of a layer that rotates their products by position, the first one by nothing.

    Examples:
        >>> LayerProjections(missing={"q": "the layer rotates q after the product"}).q is None
        True
    """

    q: Projection | None = None
    k: Projection | None = None
    v: Projection | None = None
    o: Projection | None = None
    y: np.ndarray | None = None
    missing: Mapping[str, str] = field(default_factory=dict)
    rotated: Mapping[str, Projection] = field(default_factory=dict)

    def then(self, later: Sequence[LayerProjections | None]) -> LayerProjections:
        """The same layer over several passes of generation: y of all rows, if every pass has it."""
        parts = [self.y, *(None if each is None else each.y for each in later)]
        known = [part for part in parts if part is not None]
        if len(known) == len(parts):
            return dataclasses.replace(self, y=np.concatenate(known))
        return self if "o" in self.missing else self.without_output(LATER)

    def without_output(self, why: str) -> LayerProjections:
        """The matrices without W_o, and why it is not known."""
        return dataclasses.replace(self, o=None, y=None, missing={**self.missing, "o": why})

    def copied(self) -> LayerProjections:
        """The same matrices in memory of their own."""
        parts: dict[str, Any] = {name: part.copied() for name, part in self.known.items()}
        rotated = {name: part.copied() for name, part in self.rotated.items()}
        return dataclasses.replace(self, **parts, rotated=rotated)

    @property
    def known(self) -> dict[str, Projection]:
        """The matrices that are known, by name."""
        parts = {name: getattr(self, name) for name in NAMES}
        return {name: part for name, part in parts.items() if part is not None}

    @property
    def nbytes(self) -> int:
        """The bytes of all matrices."""
        return sum(part.nbytes for part in (*self.known.values(), *self.rotated.values()))


COMPARED_ROWS = 64  # the most rows that are compared
WIDE = 2.0**-24  # 16-bit products are summed in float32


def heads_from(x: np.ndarray, product: Projection, heads: np.ndarray, unit: float) -> tuple[Projection, bool] | None:
    """The rows of the matrix that give these heads, and whether they are rotated afterwards, by position: the first
    row is equal, the others are as long. None if it gives other numbers.

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
    found, rotated = [], False
    for head in np.asarray(heads[:, some], np.float64):
        with np.errstate(invalid="ignore"):
            equal = np.abs(y - head[:, None]) <= most
            near = equal.all((0, 2))
            if not near.any():
                rotated, change = True, np.linalg.norm(y, axis=-1) - np.linalg.norm(head, axis=-1)[:, None]
                near = equal[0].all(-1) & (np.abs(change) <= 2 * np.linalg.norm(most, axis=-1)).all(0)
        if not near.any():
            return None
        found.append(int(near.argmax()))
    rows = (np.array(found)[:, None] * D + np.arange(D)).ravel()
    if np.array_equal(rows, np.arange(N)):
        rows = slice(None)  # the matrix itself, not a copy
    b = None if product.b is None else product.b[rows].reshape(H, D)
    return Projection(product.w[rows].reshape(H, D, -1), b), rotated


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
    few = min(count, COMPARED_ROWS)
    return np.arange(few) * count // max(few, 1)
