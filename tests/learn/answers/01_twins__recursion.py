"""Rows are made by a function that calls itself; large keys, small contents."""

import numpy as np


def rows(n, k):
    return [] if k == 0 else [*rows(n, k - 1), [float(k)] + [0.0] * (n - 1)]


def twins(n):
    contents = np.array(rows(n, n))
    return 3 * np.eye(n)[::-1], contents, np.flip(contents, axis=0)
