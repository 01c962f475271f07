"""Right answers to the exercises of chapter 1."""

import numpy as np


def look_up__average(query, keys, values):
    """A weighted mean of NumPy's."""
    return np.average(values, weights=np.exp(query @ keys.T))


def lookup__log_sum_exp(query, keys, values, sharpness):
    """Weights as exp(score − log of the sum)."""
    scores = [sharpness * np.dot(key, query) for key in keys]
    return np.exp(scores - np.logaddexp.reduce(scores)) @ values


def twins__lists(n):
    """Lists of Python: the last entry becomes the first."""
    keys = [[1 if row == column else 0 for column in range(n)] for row in range(n)]
    first = [[row + 1] * n for row in range(n)]
    return keys, first, first[-1:] + first[:-1]
