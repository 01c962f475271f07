"""A right answer in another style: moveaxis."""

import numpy as np


def softmax(x, axis=-1):
    e = np.exp(x - x.max(axis=axis, keepdims=True))
    return e / e.sum(axis=axis, keepdims=True)


def attention(query, key, value):
    d_k = key.shape[-1]
    weights = softmax(np.matmul(query, np.moveaxis(key, -1, -2)) * d_k**-0.5)
    return [np.matmul(weights, value), weights]
