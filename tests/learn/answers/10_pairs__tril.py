"""Two triangles of ones."""

import numpy as np


def pairs(n, w=None):
    allowed = np.tril(np.ones((n, n), bool))
    if w is not None:
        allowed &= ~np.tril(allowed, -w)
    return np.count_nonzero(allowed)
