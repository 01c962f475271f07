"""One entry after another, with the largest score so far."""

import numpy as np


def lookup(query, keys, values, sharpness):
    top, total, blend = -np.inf, 0.0, np.zeros(values.shape[1])
    for key, value in zip(keys, values):
        score = sharpness * np.sum(key * query)
        new = max(top, score)
        old, weight = np.exp(top - new), np.exp(score - new)
        total, blend, top = total * old + weight, blend * old + weight * value, new
    return blend / total
