"""Digit by digit: steps of 100, 10, 1, …, as in a search by hand."""

import numpy as np


def overflow(dtype):
    x, step = 0.0, 100.0
    while step > 1e-5:
        while np.isfinite(np.exp(np.array(x + step, dtype=dtype))):
            x += step
        step /= 10
    return x
