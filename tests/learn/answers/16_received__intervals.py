"""Marks what each rank needs, then takes away what it owns."""

import numpy as np


def received(owners, ranks, back):
    needed = np.zeros((ranks, len(owners)), bool)
    for i, rank in enumerate(owners):
        needed[rank, max(i - back, 0) : i + 1] = True
    needed[owners, np.arange(len(owners))] = False
    return needed.sum(axis=1)
