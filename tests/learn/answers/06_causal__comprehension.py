"""A list of lists, made an array."""

import numpy as np


def causal(rows, keys):
    table = [[key - keys < row - rows + 1 for key in range(keys)] for row in range(rows)]
    return np.array(table, dtype=bool).reshape(rows, keys)
