"""elu from max and expm1, and other names."""

import numpy as np


def elu(x):
    return np.maximum(x, 0) + np.expm1(np.minimum(x, 0))


def linear(queries, keys, values):
    keys = elu(keys) + 1
    queries = elu(queries) + 1
    memory = np.zeros((keys.shape[1], values.shape[1]))
    for key, value in zip(keys, values):
        memory += key[:, None] * value
    normalizer = keys.sum(axis=0)
    return (queries @ memory) / (queries @ normalizer).reshape(-1, 1)
