"""The array is flattened, and each number moved in a copy."""

import numpy as np


def numerical(f, x, h=1e-5):
    numbers = np.asarray(x, float).ravel()
    slopes = []
    for i in range(numbers.size):
        step = np.zeros(numbers.size)
        step[i] = h
        above, below = (f((numbers + sign * step).reshape(x.shape)) for sign in (1, -1))
        slopes.append((above - below) / h / 2)
    return np.array(slopes).reshape(x.shape)
