"""Reference statistics: the definition of each measure in float64 NumPy, for a block of rows and all their keys.

It builds on `reference.attention`: logits s, denominators, weights p. A row that attends to a NaN or +inf is NaN in
every measure except `counts` and `range`, which report it; a key or a cell of a map is NaN if such a row attends to it.
A fully masked row gives 0.

    >>> from regard.language.measures import checked_request
    >>> found = statistics(checked_request(np.zeros((4, 8)), np.zeros((4, 8)), ["entropy"]))
    >>> bool(np.allclose(found["entropy"], np.log(4)))
    True
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...language.analysis import evaluate
from ...language.measures import (
    Counts,
    Distance,
    Mass,
    Maximum,
    Measure,
    Pooled,
    PooledMap,
    Range,
    Request,
    Top,
    TopKeys,
    edges,
)
from ...language.problem import Problem
from .attention import ROWS, Denominator, blocks, denominator, logits, shares, with_sinks


class Rows:
    """A block of rows of the matrix: logits s, the variables they were computed from, denominators, weights p."""

    def __init__(self, problem: Problem, rows: np.ndarray):
        self.rows = rows
        self.s, self.values = logits(problem, rows, np.arange(problem.dims["K"]))
        self.attended, self.sinks = self.s != -np.inf, problem.sinks is not None
        self.below = with_sinks(problem, denominator(self.s))
        self.p = shares(self.s, self.below)

    def weigh(self, value: np.ndarray) -> np.ndarray:
        """Σ p · value over the keys of each row; NaN for a row whose weights are not numbers."""
        return self.weighed(self.p, self.below, value)

    def weighed(self, p: np.ndarray, below: Denominator, value: np.ndarray) -> np.ndarray:
        return np.where(np.isnan(below.total), np.nan, np.where(self.attended, p * value, 0).sum(-1))


def statistics(request: Request) -> dict[str, Any]:
    """Every measure by name: arrays or tuples of arrays, float64 and int64, their shapes beginning with (B, H)."""
    problem = request.problem
    B, H, Q, K = (problem.dims[axis] for axis in "BHQK")
    parts: dict[str, list] = {measure.name: [] for measure in request.measures}
    received = np.zeros((B, H, K))
    maps = {measure.name: np.zeros((2, B, H, measure.rows, measure.columns)) for measure in request.of_kind("pooled")}
    with np.errstate(all="ignore"):
        for some in [*blocks(Q, ROWS)] or [slice(0, 0)]:
            seen = Rows(problem, np.arange(Q)[some])
            received += seen.p.sum(-2)
            for measure in request.measures:
                if isinstance(measure, PooledMap):
                    pool(maps[measure.name], measure, seen, Q, K)
                elif measure.kind in OF_ROWS:
                    parts[measure.name].append(OF_ROWS[measure.kind](seen, measure))
    found: dict[str, Any] = {}
    for measure in request.measures:
        if isinstance(measure, PooledMap):
            total, largest = maps[measure.name]
            area = np.outer(np.diff(edges(Q, measure.rows)), np.diff(edges(K, measure.columns)))
            found[measure.name] = Pooled(total / area, largest)
        elif measure.kind == "received":
            found[measure.name] = received
        else:
            found[measure.name] = joined(parts[measure.name])
    return found


def joined(parts: list) -> Any:
    """Blocks of rows as one array, or as one tuple of arrays; rows are the third axis."""
    if isinstance(parts[0], tuple):
        return type(parts[0])(*(np.concatenate(each, 2) for each in zip(*parts, strict=True)))
    return np.concatenate(parts, 2)


def pool(sums: np.ndarray, measure: PooledMap, seen: Rows, Q: int, K: int) -> None:
    """Adds rows to the sums and maxima of a map's cells."""
    total, largest = sums
    begins = edges(K, measure.columns)[:-1]
    parts = np.add.reduceat(seen.p, begins, -1), np.maximum.reduceat(seen.p, begins, -1)
    for at, row in enumerate(np.searchsorted(edges(Q, measure.rows), seen.rows, "right") - 1):
        total[:, :, row] += parts[0][:, :, at]
        largest[:, :, row] = np.maximum(largest[:, :, row], parts[1][:, :, at])


def lse(seen: Rows, _: Measure) -> np.ndarray:
    return seen.below.lse


def entropy(seen: Rows, _: Measure) -> np.ndarray:
    """−Σ p ln p over the keys, where 0 ln 0 = 0. Sinks contribute no term."""
    return seen.weigh(-np.log(np.where(seen.p == 0, 1, seen.p)))


def distance(seen: Rows, _: Measure) -> Distance:
    """Mean and variance of query − key, without sinks: a mean needs weights that sum to 1."""
    below = denominator(seen.s) if seen.sinks else seen.below
    p, away = shares(seen.s, below) if seen.sinks else seen.p, seen.values["query"] - seen.values["key"]
    mean = seen.weighed(p, below, away)
    return Distance(mean, seen.weighed(p, below, (away - mean[..., None]) ** 2))


def within(seen: Rows, measure: Mass) -> np.ndarray:
    return seen.weigh(np.where(evaluate(measure.keys, seen.values), 1.0, 0.0))


def best(seen: Rows, measure: TopKeys) -> Top:
    """The keys of the largest scores, the first key where two are equal."""
    below = np.where(seen.attended, -seen.s, np.inf)
    one = measure.count == 1 and below.shape[-1]  # much faster than sorting all keys
    order = below.argmin(-1)[..., None] if one else np.argsort(below, -1, kind="stable")[..., : measure.count]
    room = [(0, 0)] * (order.ndim - 1) + [(0, measure.count - order.shape[-1])]
    there = np.pad(np.take_along_axis(seen.attended, order, -1), room)
    nan = np.isnan(seen.below.total)[..., None]
    weight = np.where(there, np.pad(np.take_along_axis(seen.p, order, -1), room), 0)
    return Top(np.where(nan, np.nan, weight), np.where(there & ~nan, np.pad(order, room), -1))


def maximum(seen: Rows, measure: Measure) -> Maximum:
    weight, key = best(seen, TopKeys("top", measure.name, 1))
    return Maximum(weight[..., 0], key[..., 0])


def spread(seen: Rows, _: Measure) -> Range:
    """Smallest and largest score; NaN if any is."""
    return Range(np.where(seen.attended, seen.s, np.inf).min(-1, initial=np.inf), seen.s.max(-1, initial=-np.inf))


def counts(seen: Rows, _: Measure) -> Counts:
    return Counts(*(found.sum(-1, dtype=np.int64) for found in (seen.attended, np.isnan(seen.s), seen.s == np.inf)))


OF_ROWS: dict[str, Callable] = {
    "lse": lse,
    "entropy": entropy,
    "distance": distance,
    "mass": within,
    "top": best,
    "maximum": maximum,
    "range": spread,
    "counts": counts,
}
