"""Right answers to the exercises of chapter 6."""

import numpy as np

import regard as rg


def causal__tril(rows, keys):
    """With tril."""
    return np.tril(np.ones((rows, keys), dtype=bool), k=keys - rows)


def combined__comprehension(lengths, n):
    """Three nested lists."""
    return np.array([[[j <= i and j < size for j in range(n)] for i in range(n)] for size in lengths])


def attend__regard(q, k, v, mask):
    """regard's own attention."""
    return rg.attention(q, k, v, mask=mask)
