"""A rotation is a product with a complex number."""

import numpy as np


def rotate(x, positions):
    half = x.shape[-1] // 2
    z = x[..., :half] + 1j * x[..., half:]
    z = z * np.exp(1j * np.outer(positions, 10000.0 ** (-np.arange(half) / half)))
    return np.concatenate([z.real, z.imag], axis=-1)
