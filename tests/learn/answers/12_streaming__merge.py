"""A part (out, lse) for each block, merged with what there is."""

import numpy as np


def part(q, k, v):
    s = q @ k.T / np.sqrt(q.shape[1])
    lse = np.logaddexp.reduce(s, axis=1)
    return np.exp(s - lse[:, None]) @ v, lse


def streaming(q, k, v, block):
    out = np.zeros((q.shape[0], v.shape[1]))
    lse = np.full(q.shape[0], -np.inf)
    for start in range(0, k.shape[0], block):
        one, own = part(q, k[start : start + block], v[start : start + block])
        both = np.logaddexp(lse, own)
        out = np.exp(lse - both)[:, None] * out + np.exp(own - both)[:, None] * one
        lse = both
    return out
