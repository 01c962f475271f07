"""A right answer in another style: log sum exp."""

import numpy as np


def softmax(scores):
    top = scores.max(-1, keepdims=True)
    lse = top + np.log(np.sum(np.exp(scores - top), axis=-1, keepdims=True))
    return np.exp(scores - lse)
