"""A right answer in another style: steps."""

import numpy as np


def overflow(dtype):
    kind = getattr(np, dtype)
    x, step = 0.0, 512.0
    while step > 1e-6:
        if np.isfinite(np.exp(kind(x + step))):
            x += step
        step /= 2
    return x
