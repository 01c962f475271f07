"""A tree: two halves are merged, each of them merged before."""

import numpy as np


def two(a, b):
    (one, first), (other, second) = a, b
    lse = np.logaddexp(first, second)
    base = np.where(lse == -np.inf, 0.0, lse)
    wa, wb = np.exp(first - base)[:, None], np.exp(second - base)[:, None]
    return wa * np.where(wa == 0, 0, one) + wb * np.where(wb == 0, 0, other), lse


def merge(parts):
    if len(parts) == 1:
        out, lse = parts[0]
        return np.where(np.isneginf(lse)[:, None], 0, out), lse
    middle = len(parts) // 2
    return two(merge(parts[:middle]), merge(parts[middle:]))
