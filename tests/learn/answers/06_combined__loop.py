"""One text after another."""

import numpy as np


def combined(lengths, n):
    triangle = np.tril(np.ones((n, n), bool))
    masks = []
    for length in lengths:
        mask = triangle.copy()
        mask[:, length:] = False
        masks.append(mask)
    return np.stack(masks)
