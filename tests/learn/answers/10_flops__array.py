"""An array of the two numbers, from multiply-adds."""

import numpy as np


def flops(n, d, h, g, pairs):
    multiply_adds = np.array([n * 2 * d * (d + g * (d // h)), 2 * d * pairs], dtype=np.int64)
    return tuple(2 * multiply_adds)
