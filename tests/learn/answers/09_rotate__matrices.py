"""A matrix of two rows and columns for each position and pair, applied by einsum."""

import numpy as np


def rotate(x, positions):
    heads, n, d = x.shape
    t = np.asarray(positions)[:, None] * 10000.0 ** (-2 * np.arange(d // 2) / d)
    turn = np.array([[np.cos(t), -np.sin(t)], [np.sin(t), np.cos(t)]])
    return np.einsum("abni,hnbi->hnai", turn, x.reshape(heads, n, 2, d // 2)).reshape(x.shape)
