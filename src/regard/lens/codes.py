"""Weights in a byte or two each: logarithmic codes with a known relative error, and the small pictures of the atlas.

    code 0 masked · 1 below 10⁻⁶ · 2 not a number · 3 … 255 the weight 10^(6·(code − 3)/252 − 6), so that 1 is exact

A second byte, where it is kept, divides each step by 256.
"""

from __future__ import annotations

import base64
import math
import zlib
from dataclasses import dataclass

import numpy as np

__all__ = ["COARSE_ERROR", "FINE_ERROR", "Coded", "Coder", "decode", "encode", "packed", "percent"]

DECADES = 6
FIRST, STEPS = 3, 252
COARSE_ERROR = 10 ** (DECADES / STEPS * (0.5 + 1 / 512)) - 1  # relative: 2.8 %
FINE_ERROR = 10 ** (DECADES / STEPS / 512) - 1  # relative: 0.011 %
PICTURE = 44  # cells along the side of a picture in the atlas


@dataclass(frozen=True)
class Coded:
    """One layer: (H, n, n) codes, second bytes or None, and (H, t, t) codes of its pictures."""

    coarse: np.ndarray
    fine: np.ndarray | None
    pictures: np.ndarray

    def weights(self, head: int | slice, row: int | slice) -> np.ndarray:
        """The weights of heads and rows, to within the error of the codes; masked and tiny ones are 0."""
        return decode(self.coarse[head, row], None if self.fine is None else self.fine[head, row])


def encode(weights: np.ndarray, allowed: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(coarse, fine) uint8 codes of weights in [0, 1].

    >>> codes = encode(np.array([0.0, 1e-6, 1.0, 0.5, np.nan]), np.array([False, True, True, True, True]))
    >>> codes[0].tolist(), decode(*codes).round(4).tolist()
    ([0, 3, 255, 242, 2], [0.0, 0.0, 1.0, 0.5, nan])
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        x = (np.log10(weights) / DECADES + 1) * STEPS * 256
        fixed = np.where(x >= -128, np.rint(np.minimum(x, STEPS * 256)), 0).astype(np.int32) + 128
    coarse = np.where(np.isnan(weights), 2, np.where(x >= -128, (fixed >> 8) + FIRST, 1))
    return np.where(allowed, coarse, 0).astype(np.uint8), (fixed & 255).astype(np.uint8)


def decode(coarse: np.ndarray, fine: np.ndarray | None = None) -> np.ndarray:
    """The weights that the codes stand for; masked and tiny ones are 0."""
    x = coarse.astype(float) - FIRST + (0 if fine is None else (fine.astype(float) - 128) / 256)
    found = 10 ** ((x / STEPS - 1) * DECADES)
    return np.where(coarse == 2, np.nan, np.where(coarse < FIRST, 0, found))


class Coder:
    """Codes the rows of one layer over n tokens, a block at a time.

    A cell of a picture is the mean over its queries of the sum over its keys: the rows of a picture sum to 1 as well.
    """

    def __init__(self, heads: int, n: int, fine: bool):
        self.side = min(n, PICTURE)
        self.bins = np.arange(n) * self.side // n
        self.edges = np.searchsorted(self.bins, np.arange(self.side))
        self.coarse = np.empty((heads, n, n), np.uint8)
        self.fine = np.empty((heads, n, n), np.uint8) if fine else None
        self.mass = np.zeros((heads, self.side, self.side))
        self.seen = np.zeros((heads, self.side, self.side), bool)

    def add(self, rows: slice, weights: np.ndarray, allowed: np.ndarray) -> None:
        """weights and allowed: (H, rows, n)."""
        self.coarse[:, rows], low = encode(weights, allowed)
        if self.fine is not None:
            self.fine[:, rows] = low
        pooled = np.add.reduceat(np.where(allowed, weights, 0), self.edges, axis=2)
        any_seen = np.logical_or.reduceat(allowed, self.edges, axis=2)
        for i, row in enumerate(range(rows.start, rows.stop)):
            self.mass[:, self.bins[row]] += pooled[:, i]
            self.seen[:, self.bins[row]] |= any_seen[:, i]

    def result(self) -> Coded:
        means = self.mass / np.bincount(self.bins)[:, None]
        return Coded(self.coarse, self.fine, encode(means, self.seen)[0])


def packed(codes: np.ndarray) -> str:
    """Bytes as deflated base64, which is text of letters, digits, + / = alone."""
    return base64.b64encode(zlib.compress(np.ascontiguousarray(codes).tobytes(), 6)).decode()


def percent(error: float) -> str:
    """An error bound in words, rounded up."""
    digits = max(0, -math.floor(math.log10(error * 100)))
    return f"{math.ceil(error * 100 * 10**digits) / 10**digits:g} %"
