"""Ranks note what they hold, and count what they lack."""

import numpy as np


def received(owners, ranks, back):
    held = {rank: {i for i, other in enumerate(owners) if other == rank} for rank in range(ranks)}
    count = np.zeros(ranks)
    for i, rank in enumerate(owners):
        for j in range(i, max(i - back, 0) - 1, -1):
            if j not in held[rank]:
                held[rank].add(j)
                count[rank] += 1
    return count
