"""One call of bincount with weights."""

import numpy as np


def work(owners, ranks, size):
    pairs = np.arange(len(owners)) * size**2 + size * (size + 1) / 2
    return np.bincount(owners, weights=pairs, minlength=ranks)
