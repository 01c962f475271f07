"""Random keys and contents; two rows change places."""

import numpy as np


def twins(n):
    rng = np.random.default_rng()
    keys, first = rng.normal(size=(n, n)), rng.normal(size=(n, n))
    second = first.copy()
    second[[0, 1]] = second[[1, 0]]
    return keys, first, second
