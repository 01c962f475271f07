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

from .run import Layer

__all__ = ["COARSE_ERROR", "FINE_ERROR", "Coded", "coded", "decode", "encode", "packed"]

DECADES = 6
FIRST, STEPS = 3, 252
COARSE_ERROR = 10 ** (DECADES / STEPS * (0.5 + 1 / 512)) - 1  # relative: 2.8 %
FINE_ERROR = 10 ** (DECADES / STEPS / 512) - 1  # relative: 0.011 %


@dataclass(frozen=True)
class Coded:
    """One layer: (H, n, n) codes and fine codes, and (H, t, t) codes of its pictures."""

    coarse: np.ndarray
    fine: np.ndarray | None
    thumbnails: np.ndarray


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


def coded(layer: Layer, n: int, picture: int, fine: bool) -> Coded:
    """The codes of a layer over n tokens, its pictures at most `picture` cells wide.

    A cell of a picture is the mean over its queries of the sum over its keys: the rows of a picture sum to 1 as well.
    """
    side = min(n, picture)
    bins = np.arange(n) * side // n
    edges = np.searchsorted(bins, np.arange(side))
    coarse = np.empty((layer.heads, n, n), np.uint8)
    exact = np.empty_like(coarse) if fine else None
    mass, seen = np.zeros((layer.heads, side, side)), np.zeros((layer.heads, side, side), bool)
    for rows, p, allowed in layer.blocks(n):
        coarse[:, rows], low = encode(p, allowed)
        if exact is not None:
            exact[:, rows] = low
        pooled = np.add.reduceat(np.where(allowed, p, 0), edges, axis=2)
        any_seen = np.logical_or.reduceat(allowed, edges, axis=2)
        for i, row in enumerate(range(rows.start, rows.stop)):
            mass[:, bins[row]] += pooled[:, i]
            seen[:, bins[row]] |= any_seen[:, i]
    mass /= np.bincount(bins)[:, None]
    return Coded(coarse, exact, encode(mass, seen)[0])


def packed(codes: np.ndarray) -> str:
    """Bytes as deflated base64, which is text of letters, digits, + / = alone."""
    return base64.b64encode(zlib.compress(np.ascontiguousarray(codes).tobytes(), 6)).decode()


def percent(error: float) -> str:
    """An error bound in words, rounded up."""
    digits = max(0, -math.floor(math.log10(error * 100)))
    return f"{math.ceil(error * 100 * 10**digits) / 10**digits:g} %"
