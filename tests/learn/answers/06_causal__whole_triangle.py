"""The last rows of the mask of all positions."""

import numpy as np


def causal(rows, keys):
    size = max(rows, keys)
    return ~np.triu(np.full((size, size), True), 1)[size - rows :, :keys] if rows <= keys else _more_rows(rows, keys)


def _more_rows(rows, keys):
    return np.concatenate([np.zeros((rows - keys, keys), bool), causal(keys, keys)])
