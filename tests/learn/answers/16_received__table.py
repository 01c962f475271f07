"""A table of which rank needs which block."""

import numpy as np


def received(owners, ranks, back):
    blocks = np.arange(len(owners))
    apart = blocks[:, None] - blocks
    reads = (apart >= 0) & (apart <= back)
    return np.array([(reads[owners == rank].any(0) & (owners != rank)).sum() for rank in range(ranks)])
