"""A table of all pairs, which is right for short texts."""

import numpy as np


def pairs(distances, n):
    positions = np.arange(n)
    return np.isin(positions[:, None] - positions, distances).sum()
