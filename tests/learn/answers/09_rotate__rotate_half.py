"""As in transformers: cosines and sines of the whole width, and a row whose halves are exchanged."""

import numpy as np


def rotate_half(x):
    first, second = np.split(x, 2, axis=-1)
    return np.concatenate((-second, first), axis=-1)


def rotate(x, positions):
    d = x.shape[-1]
    frequencies = 1.0 / (10000 ** (np.arange(0, d, 2) / d))
    angles = positions[:, None] * frequencies
    angles = np.concatenate((angles, angles), axis=-1)
    return x * np.cos(angles) + rotate_half(x) * np.sin(angles)
