"""A matrix of four diagonals for each position; other names of the parameters."""

import numpy as np


def rotate(rows, where):
    out = np.zeros(rows.shape)
    half = rows.shape[-1] // 2
    for j, p in enumerate(where):
        t = p / 10000 ** (np.arange(half) / half)
        cos, sin = np.diag(np.cos(t)), np.diag(np.sin(t))
        out[:, j] = rows[:, j] @ np.block([[cos, sin], [-sin, cos]])
    return out
