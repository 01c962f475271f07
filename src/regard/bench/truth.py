"""Truth: is a result right? Compared with float64 before anything is timed."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from .. import reference
from ..problem import Problem
from .cases import Inputs

__all__ = ["TOLERANCE", "Truth"]

ROWS = 64  # checked per head; all rows of smaller cases
# float32 errs by about 1e-6 here, a single wrong key by 1e-3 or more; 16 bits are rounded by more than a key of thousands weighs.
TOLERANCE = {"float32": 2e-5, "float16": 4e-3, "bfloat16": 3e-2}
GRADIENTS = 5  # times as much for gradients, which are sums over rows


class Truth:
    """The float64 answer where it is checked.

    Of a forward some rows of every head: the first, the last, and random ones between. Of gradients all of the first and of the
    last head.
    """

    def __init__(self, inputs: Inputs):
        case = inputs.case
        self.tolerance = TOLERANCE[case.dtype] * (GRADIENTS if case.task == "gradients" else 1)
        if case.task == "gradients":
            self.shapes = [array.shape for array in (inputs.q, inputs.k, inputs.v)]
            self.answers = gradients(inputs, heads := [0, case.H - 1])
            self.place: tuple = np.index_exp[:, heads]
        else:
            between = np.random.default_rng(1).permutation(np.arange(1, case.Q - 1))[: ROWS - 2]
            rows = np.unique([0, case.Q - 1, *between])
            self.shapes = [(*inputs.q.shape[:3], inputs.v.shape[3])]
            self.answers = [outputs(inputs, rows)]
            self.place = np.index_exp[:, :, rows]

    def error(self, found: Sequence[np.ndarray]) -> float:
        """The largest absolute difference; infinite if a shape is wrong or any number is not finite."""
        if [array.shape for array in found] != self.shapes or not all(np.isfinite(array).all() for array in found):
            return math.inf
        return float(max(abs(array[self.place] - answer).max() for array, answer in zip(found, self.answers, strict=True)))


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
    """dq, dk, dv of some heads, one at a time; the case has as many key heads as query heads."""
    found = []
    for head in heads:
        q, k, v, dout = (array[:, [head]].astype(np.float32) for array in (inputs.q, inputs.k, inputs.v, inputs.dout))
        found.append(reference.backward(Problem.of(q, k, v, mask=inputs.mask, score=inputs.score), dout)[:3])
    return [np.concatenate(parts, axis=1) for parts in zip(*found, strict=True)]
