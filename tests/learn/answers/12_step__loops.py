"""Each head and each row by itself, with a slice of the keys in place of a mask."""

import numpy as np


def step(cache, q, k, v):
    keys = np.concatenate((cache[0], k), axis=-2)
    values = np.concatenate((cache[1], v), axis=-2)
    past = cache[0].shape[1]
    out = np.empty_like(v)
    for head in range(q.shape[0]):
        for row in range(q.shape[1]):
            end = past + row + 1
            scores = keys[head, :end] @ q[head, row] / np.sqrt(q.shape[2])
            weights = np.exp(scores - scores.max())
            out[head, row] = weights @ values[head, :end] / weights.sum()
    return out, (keys, values)
