"""The causal table of all pairs, which is right for short texts."""

import numpy as np


def work(owners, ranks, size):
    of_row = np.repeat(owners, size)
    keys = np.tri(len(of_row)).sum(1)
    return np.array([keys[of_row == rank].sum() for rank in range(ranks)])
