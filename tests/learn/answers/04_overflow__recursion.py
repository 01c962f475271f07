"""A right answer in another style: recursion."""

import numpy as np


def overflow(dtype, low=0.0, high=1000.0):
    if high - low < 1e-4:
        return low
    middle = low + (high - low) / 2
    if np.exp(np.array(middle, dtype)) == np.inf:
        return overflow(dtype, low, middle)
    return overflow(dtype, middle, high)
