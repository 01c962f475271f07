"""The real and imaginary parts of complex numbers are next to each other in memory."""

import numpy as np


def sinusoids(n, d):
    angles = np.arange(n)[:, None] / np.power(10000.0, np.linspace(0, 1, d // 2, endpoint=False))
    return np.ascontiguousarray(1j * np.exp(-1j * angles)).view(np.float64)
