"""A right answer in another style: comprehension."""

import numpy as np


def weights(row):
    p = np.exp(row - row.max())
    return p / p.sum()


def attend(q, k, v):
    return [weights(k @ row / len(row) ** 0.5) @ v for row in q]
