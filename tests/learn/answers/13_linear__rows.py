"""The weights of one row at a time."""

import numpy as np


def feature(x):
    """φ: x + 1 for positive numbers, exp(x) for the others."""
    return np.where(x > 0, x + 1, np.exp(np.minimum(x, 0)))


def linear(q, k, v):
    fk = feature(k)
    out = np.empty((q.shape[0], v.shape[1]))
    for i in range(len(q)):
        weights = fk @ feature(q[i])
        out[i] = weights @ v / weights.sum()
    return out
