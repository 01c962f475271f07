"""Right answers to the exercises of chapter 13."""

import numpy as np


def window__middle(query, key, width):
    """One comparison: the distance from the middle of the window."""
    return abs(2 * (query - key) - (width - 1)) <= width - 1


def pairs__selected(behind, tokens):
    """Only the distances that occur, and a float."""
    behind = np.asarray(behind)[np.asarray(behind) < tokens]
    return float(tokens * len(behind) - behind.sum())


def strided__remainders(q, k, s):
    """Equal remainders of both positions."""
    near = (k > q - s) & (k <= q)
    far = (q % s == k % s) & (k <= q)
    return near | far


def feature(x):
    """φ: x + 1 for positive numbers, exp(x) for the others."""
    return np.where(x > 0, x + 1, np.exp(np.minimum(x, 0)))


def linear__ones(q, k, v):
    """A column of ones beside the values."""
    joined = np.concatenate([v, np.ones((len(v), 1))], axis=1)
    out = feature(q) @ (feature(k).T @ joined)
    return out[:, :-1] / out[:, -1:]


def causal_linear__chunk(q, k, v, S, z):
    """One chunk: a table with a causal mask, and the state."""
    fq, fk = feature(q), feature(k)
    weights = np.tril(fq @ fk.T)
    below = weights.sum(1) + fq @ z
    return (weights @ v + fq @ S) / below[:, None], S + fk.T @ v, z + fk.sum(0)
