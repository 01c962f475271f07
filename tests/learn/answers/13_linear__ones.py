"""A column of ones beside the values."""

import numpy as np


def feature(x):
    """φ: x + 1 for positive numbers, exp(x) for the others."""
    return np.where(x > 0, x + 1, np.exp(np.minimum(x, 0)))


def linear(q, k, v):
    joined = np.concatenate([v, np.ones((len(v), 1))], axis=1)
    out = feature(q) @ (feature(k).T @ joined)
    return out[:, :-1] / out[:, -1:]
