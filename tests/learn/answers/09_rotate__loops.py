"""Plain loops: each head, row and pair."""

import math

import numpy as np


def rotate(x, positions):
    heads, n, d = x.shape
    out = np.zeros_like(x)
    for head in range(heads):
        for row in range(n):
            for i in range(d // 2):
                t = int(positions[row]) / 10000 ** (2 * i / d)
                a, b = x[head, row, i], x[head, row, i + d // 2]
                out[head, row, i] = a * math.cos(t) - b * math.sin(t)
                out[head, row, i + d // 2] = a * math.sin(t) + b * math.cos(t)
    return out
