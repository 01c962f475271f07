"""Plain loops and the math module."""

import math

import numpy as np


def sinusoids(n, d):
    pe = np.zeros((n, d))
    for position in range(n):
        for i in range(d // 2):
            angle = position / 10000 ** (2 * i / d)
            pe[position, 2 * i] = math.sin(angle)
            pe[position, 2 * i + 1] = math.cos(angle)
    return pe
