"""A right answer in another style: axis argument."""

import numpy as np


def softmax(scores, axis=-1):
    z = scores.astype(np.float64)
    z -= z.max(axis=axis, keepdims=True)
    np.exp(z, out=z)
    z /= z.sum(axis=axis, keepdims=True)
    return z
