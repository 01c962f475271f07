"""A right answer in another style: apply."""

import numpy as np


def one(x):
    y = np.exp(x - x.max())
    return y / y.sum()


def softmax(scores):
    return np.apply_along_axis(one, -1, scores)
