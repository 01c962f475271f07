"""Bisection that calls itself."""

import numpy as np


def overflow(dtype, low=0.0, high=1000.0):
    if high - low < 0.001:
        return (low + high) / 2
    middle = (low + high) / 2
    finite = np.exp(np.array(middle, dtype)) < np.inf
    return overflow(dtype, middle, high) if finite else overflow(dtype, low, middle)
