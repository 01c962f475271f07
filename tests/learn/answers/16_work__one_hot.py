"""A product with a table of ones: which rank owns which block."""

import numpy as np


def work(owners, ranks, size):
    owned = np.arange(ranks)[:, None] == owners
    return owned @ (np.arange(len(owners)) * size * size + size * (size + 1) // 2)
