"""All states at once, by cumsum."""

import numpy as np


def feature(x):
    """φ: x + 1 for positive numbers, exp(x) for the others."""
    return np.where(x > 0, x + 1, np.exp(np.minimum(x, 0)))


def causal_linear(q, k, v, S, z):
    fq, fk = feature(q), feature(k)
    states = S + np.cumsum(fk[:, :, None] * v[:, None, :], axis=0)
    totals = z + np.cumsum(fk, axis=0)
    out = np.einsum("nd,nde->ne", fq, states) / (fq * totals).sum(1, keepdims=True)
    return (out, states[-1], totals[-1]) if len(q) else (out, S, z)
