"""One-hot keys, one-hot contents, each moved on by one entry."""

import numpy as np


def twins(n):
    return np.eye(n), np.eye(n), np.roll(np.eye(n), 1, axis=0)
