"""Four points, which are more accurate at a larger step; as a comprehension over the identity matrix."""

import numpy as np


def numerical(f, x, h=1e-5):
    h = 1e-3
    directions = np.eye(x.size).reshape(x.size, *x.shape) * h
    slopes = [(8 * (f(x + d) - f(x - d)) - f(x + 2 * d) + f(x - 2 * d)) / (12 * h) for d in directions]
    return np.reshape(slopes, x.shape)
