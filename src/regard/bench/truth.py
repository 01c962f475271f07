"""Truth: is a result right? Compared with float64 before anything is timed."""

from __future__ import annotations

import math

import numpy as np

from .. import reference
from ..problem import Problem
from .cases import Inputs

__all__ = ["TOLERANCE", "Truth"]

ROWS = 64  # checked per head; all rows of smaller cases
TOLERANCE = 2e-5  # float32 errs by about 1e-6 here, a single wrong key by 1e-3 or more


class Truth:
    """The float64 answer on some rows of a case: the first, the last, and random ones between."""

    def __init__(self, inputs: Inputs):
        problem = Problem.of(inputs.q, inputs.k, inputs.v, mask=inputs.mask, score=inputs.score)
        Q, K = problem.dims["Q"], problem.dims["K"]
        between = np.random.default_rng(1).permutation(np.arange(1, Q - 1))[: ROWS - 2]
        self.rows = np.sort(np.concatenate([[0, Q - 1], between]))
        values = np.repeat(inputs.v.astype(np.float64), inputs.q.shape[1] // inputs.v.shape[1], axis=1)
        self.answer = reference.weights(problem, self.rows, np.arange(K)) @ values
        self.shape = (*inputs.q.shape[:3], inputs.v.shape[3])

    def error(self, found: np.ndarray) -> float:
        """The largest absolute difference; infinite if the shape is wrong or any number is not finite."""
        if found.shape != self.shape or not np.isfinite(found).all():
            return math.inf
        return float(abs(found[:, :, self.rows] - self.answer).max())
