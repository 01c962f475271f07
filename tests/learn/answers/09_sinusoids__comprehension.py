"""One list for each position."""

import math

import numpy as np


def row(p, d):
    return [function(p / 10000 ** (2 * i / d)) for i in range(d // 2) for function in (math.sin, math.cos)]


def sinusoids(n, d):
    return np.array([row(p, d) for p in range(n)]).reshape(n, d)
