"""The slopes of half as many heads are every other one; those between are their geometric means."""

import math

import numpy as np


def alibi(h):
    if h == 1:
        return np.array([2.0**-8])
    coarse = alibi(h // 2)
    fine = np.zeros(h)
    fine[1::2] = coarse
    fine[0::2] = [math.sqrt(a * b) for a, b in zip([1.0, *coarse[:-1]], coarse)]
    return fine
