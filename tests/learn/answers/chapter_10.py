"""Right answers to the exercises of chapter 10."""

import math

import numpy as np


def params__float(d, h, g):
    """A division with a slash."""
    return 2 * d * d + 2 * d * d * g / h


def pairs__clip(n, w=None):
    """The number of keys of all rows at once."""
    return np.arange(1, n + 1).clip(max=w if w is not None else n).sum() if n else 0


def flops__shorter(n, d, h, g, pairs):
    """The heads fill the width."""
    return 4 * n * d * d * (h + g) // h, 4 * d * pairs


def kv_bytes__product(n, layers, d, h, g, size):
    """One product of a list."""
    return math.prod([n, layers, 2, g, d // h, size])
