"""The query as a matrix of one row; the sharpness multiplies the differences."""

import numpy as np


def lookup(query, keys, values, sharpness):
    scores = query[None, :] @ keys.T
    weights = np.exp(sharpness * (scores - scores.max(axis=1, keepdims=True)))
    weights /= weights.sum(axis=1, keepdims=True)
    return (weights @ values)[0]
