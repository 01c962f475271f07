"""The engines that every law is tested in, and the inputs and comparisons that those tests share."""

import ml_dtypes
import numpy as np
import pytest

from regard.language.analysis import evaluate
from tests.support.lanes import sweep

ENGINES = ["reference", "jit"]
DTYPES = [np.float32, np.float64, np.float16, ml_dtypes.bfloat16]
dtypes = pytest.mark.parametrize("dtype", DTYPES)
# CI compiles for two of them, sweeps for the others.
dtypes_in_ci = pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16, *sweep(np.float64, np.float16)])
engines = pytest.mark.parametrize("engine", ENGINES)
TOLERANCE = {"rtol": 3e-5, "atol": 3e-6}  # of float32, for scores of a few units


def normal(*shape, seed=0, dtype=np.float32):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def qkv(H=2, Q=19, K=37, D=16, E=16, G=None, B=2, dtype=np.float32, draw=normal, seed=0):
    G = H if G is None else G
    shapes = (B, H, Q, D), (B, G, K, D), (B, G, K, E)
    return [draw(*shape, seed=3 * seed + n, dtype=dtype) for n, shape in enumerate(shapes, 1)]


def at_every_pair(rule, shape, start=0, score=0.0):
    """The value of a rule at every pair, (B, H, Q, K); start: the position of the first row, or of each entry's."""
    b, h, i, j = np.ix_(*map(range, shape))
    places = {"batch": b, "head": h, "query": i + np.reshape(start, (-1, 1, 1, 1)), "key": j, "score": score}
    return np.broadcast_to(evaluate(rule, places), shape)


def same_bits(x, y):
    """Equal numbers, and equal signs of zero."""
    assert x.dtype == y.dtype
    np.testing.assert_array_equal(x, y)
    np.testing.assert_array_equal(np.signbit(x * 1.0), np.signbit(y * 1.0))
