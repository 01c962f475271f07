"""A right answer in another style: for loop."""

import numpy as np


def overflow(dtype):
    fine, bad = 1, 1000
    for _ in range(40):
        mid = 0.5 * (fine + bad)
        if np.isinf(np.exp(np.asarray(mid).astype(dtype))):
            bad = mid
        else:
            fine = mid
    return (fine + bad) / 2
