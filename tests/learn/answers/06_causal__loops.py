"""Two loops."""

import numpy as np


def causal(rows, keys):
    allowed = np.zeros((rows, keys), bool)
    for i in range(rows):
        for j in range(keys):
            if j <= i + keys - rows:
                allowed[i, j] = True
    return allowed
