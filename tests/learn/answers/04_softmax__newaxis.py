"""A right answer in another style: newaxis."""

import numpy as np


def softmax(scores):
    m = np.amax(scores, axis=-1)[..., None]
    e = np.e ** (scores - m)
    return e / np.add.reduce(e, axis=-1)[..., np.newaxis]
