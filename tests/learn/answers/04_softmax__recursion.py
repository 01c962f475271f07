"""A right answer in another style: recursion."""

import numpy as np


def softmax(scores):
    if scores.ndim > 1:
        return np.stack([softmax(part) for part in scores])
    shifted = np.exp(scores - np.max(scores))
    return shifted / np.sum(shifted)
