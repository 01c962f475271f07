"""Slopes in float32."""

import numpy as np


def alibi(h):
    slopes = np.empty(h, np.float32)
    for head in range(h):
        slopes[head] = 2 ** (-8 * (head + 1) / h)
    return slopes
