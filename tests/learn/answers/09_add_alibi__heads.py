"""Head by head, in a list."""

import numpy as np


def add_alibi(scores, slopes):
    rows, keys = scores.shape[1:]
    distance = np.abs(np.fromfunction(lambda i, j: i + keys - rows - j, (rows, keys)))
    return np.array([head - slope * distance for head, slope in zip(scores, slopes)])
