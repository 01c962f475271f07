"""Tolerance: how far the answer of a function with a mistake may be from the law with that mistake.

It is rougher than law.bound, because it only separates mistakes from each other, and faster.
"""

from __future__ import annotations

import numpy as np

from ...common.dtypes import FLOATS
from ..call import Call
from ..law.arguments import Arguments
from ..law.forward import Outcome, on_heads
from ..law.steps import product


def tolerance(arguments: Arguments, outcome: Outcome, call: Call) -> tuple[np.ndarray, np.ndarray]:
    """(bound of out, bound of lse): c · (u · κ + u) · Σ w |v| + u |out|, κ = max Σ |scale · q_d k_d|."""
    unit = FLOATS[str(call.dtype)].roundoff
    q, k, v = (np.nan_to_num(np.asarray(part, np.float64), posinf=0, neginf=0) for part in (call.q, call.k, call.v))
    with np.errstate(all="ignore"):
        q, k, v = arguments.inputs(q, k, v)
        k, v = on_heads(arguments, q, k, v)
        size = abs(arguments.scale) * (np.abs(q) @ np.abs(k).swapaxes(-1, -2)).max(-1, initial=0)
        if arguments.product is not product:
            size = np.fmax(size, np.abs(np.where(outcome.allowed, outcome.scores, 0)).max(-1, initial=0))
        size = 8 * unit * (1 + size)
        weights = np.abs(np.nan_to_num(outcome.weights, posinf=0, neginf=0))
        spread = arguments.finish(size[..., None] * (weights @ np.abs(v)))
        shape = outcome.lse.shape
        out = spread + 4 * unit * np.abs(outcome.out) + 1e-30
        size = size.swapaxes(1, 2) if size.shape != shape == size.swapaxes(1, 2).shape else size
        return out, np.broadcast_to(size, shape) + 8 * unit * np.abs(outcome.lse)
