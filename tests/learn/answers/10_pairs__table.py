"""A table of positions."""

import numpy as np


def pairs(n, w=None):
    back = np.arange(n)[:, None] - np.arange(n)
    return int(((back >= 0) & (back < (w or n))).sum())
