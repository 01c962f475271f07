"""Accuracy: checks the results of engines against float64 before anything is timed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from regard.engines.reference import attention as reference
from regard.language.problem import Problem

from .cases import CELLS, Inputs

__all__ = ["TOLERANCE", "Truth"]

ROWS = 64  # checked per head; all rows of smaller cases
# The error of float32 is about 1e-6 here; a single wrong key causes 1e-3 or more. 16-bit rounding errors exceed the
# weight of one key among thousands.
TOLERANCE = {"float32": 2e-5, "float16": 4e-3, "bfloat16": 3e-2}
SUMS = 5  # factor of the tolerance for gradients and statistics, which are longer sums


class Check(NamedTuple):
    """An array of a result: its shape, and the expected values (`answer`) at an index (`place`)."""

    shape: tuple[int, ...]
    place: tuple
    answer: np.ndarray


class Truth:
    """The expected results of a case in float64, where they are checked.

    Outputs, entropies and distances are checked in some rows of every head: the first, the last, and random ones
    between. Gradients are checked in the first and last head. The weights that keys receive, and each row of the map,
    must have the right sum.
    """

    def __init__(self, inputs: Inputs):
        case = inputs.case
        self.tolerance = TOLERANCE[case.dtype] * (SUMS if case.task in ("gradients", "statistics") else 1)
        if case.task == "gradients":
            heads = [0, case.H - 1]
            arrays = zip((inputs.q, inputs.k, inputs.v), gradients(inputs, heads), strict=True)
            self.answers = [[Check(array.shape, np.index_exp[:, heads], answer) for array, answer in arrays]]
            return
        between = np.random.default_rng(1).permutation(np.arange(1, case.Q - 1))[: ROWS - 2]
        rows = np.unique([0, case.Q - 1, *between])
        place = np.index_exp[:, :, rows]
        self.answers = [[Check((*inputs.q.shape[:3], inputs.v.shape[3]), place, outputs(inputs, rows))]]
        if case.task == "statistics":
            lead, bands = inputs.q.shape[:2], min(CELLS, case.Q)
            checks = [Check((*lead, case.Q), place, answer) for answer in row_statistics(inputs, rows)]
            ones = [Check(shape, (...,), np.ones(shape)) for shape in ((*lead, bands), lead)]
            self.answers.append(checks + ones)

    def error(self, found: Sequence[np.ndarray]) -> float:
        """The largest absolute difference; infinite if a shape is wrong or any value is not finite."""
        for checks in self.answers:  # of statistics, and of the forward pass that they are compared with
            if [array.shape for array in found] == [check.shape for check in checks] and all(map(finite, found)):
                return float(
                    max(
                        abs(array[check.place] - check.answer).max() for array, check in zip(found, checks, strict=True)
                    )
                )
        return math.inf


def finite(array: np.ndarray) -> bool:
    return bool(np.isfinite(array).all())


def row_statistics(inputs: Inputs, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Entropy, and the mean distance divided by the number of keys, (B, H, rows)."""
    problem = Problem.of(inputs.q, inputs.k, None, mask=inputs.mask, score=inputs.score)
    p = reference.weights(problem, rows, np.arange(inputs.case.K))
    away = rows[:, None] - np.arange(inputs.case.K)
    return -(p * np.log(np.where(p > 0, p, 1))).sum(-1), (p * away).sum(-1) / inputs.case.K


def outputs(inputs: Inputs, rows: np.ndarray) -> np.ndarray:
    """out (B, H, rows, D), one batch entry at a time."""
    found = []
    for entry in range(inputs.case.B):
        q, k, v = (array[entry : entry + 1].astype(np.float32) for array in (inputs.q, inputs.k, inputs.v))
        problem = Problem.of(q, k, v, mask=inputs.mask, score=inputs.score)
        values = np.repeat(v.astype(np.float64), inputs.case.H // inputs.case.G, axis=1)
        found.append(reference.weights(problem, rows, np.arange(inputs.case.K)) @ values)
    return np.concatenate(found)


def gradients(inputs: Inputs, heads: list[int]) -> list[np.ndarray]:
    """dq, dk, dv of some heads, one at a time; the case must have as many key heads as query heads."""
    found = []
    for head in heads:
        q, k, v, dout = (array[:, [head]].astype(np.float32) for array in (inputs.q, inputs.k, inputs.v, inputs.dout))
        found.append(reference.backward(Problem.of(q, k, v, mask=inputs.mask, score=inputs.score), dout)[:3])
    return [np.concatenate(parts, axis=1) for parts in zip(*found, strict=True)]
