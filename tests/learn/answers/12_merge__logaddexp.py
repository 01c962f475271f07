"""Weights that sum to 1, from the lse of all parts."""

import numpy as np


def merge(parts):
    lse = np.logaddexp.reduce([lse for _, lse in parts])
    out = 0
    for part, own in parts:
        weight = np.exp(own - np.where(np.isneginf(lse), 0, lse))[:, None]
        out = out + weight * np.nan_to_num(part) * (weight > 0)
    return out, lse
