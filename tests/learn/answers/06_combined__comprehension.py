"""Three nested lists."""

import numpy as np


def combined(lengths, n):
    return np.array([[[j <= i and j < size for j in range(n)] for i in range(n)] for size in lengths])
