"""One comparison with the smaller of two limits."""

import numpy as np


def combined(lengths, n):
    limit = np.minimum(np.arange(1, n + 1)[None, :], lengths[:, None])
    return np.arange(n)[None, None, :] < limit[:, :, None]
