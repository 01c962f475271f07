"""Each slope from the one before."""

import numpy as np


def alibi(h):
    ratio = 2 ** (-8 / h)
    return np.cumprod(np.full(h, ratio))
