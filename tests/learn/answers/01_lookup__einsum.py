"""Einsum, and other names."""

import numpy as np


def lookup(query, keys, values, sharpness):
    fit = sharpness * np.einsum("d,nd->n", query, keys)
    share = np.exp(fit - np.max(fit))
    return np.einsum("n,nw->w", share / share.sum(), values)
