"""A right answer in another style: streaming."""

import numpy as np


def attend(q, k, v):
    top = np.full((len(q), 1), -np.inf)
    total = np.zeros((len(q), 1))
    out = np.zeros((len(q), v.shape[1]))
    for key, value in zip(k, v):
        s = (q @ key)[:, None] / np.sqrt(len(key))
        new = np.maximum(top, s)
        total = total * np.exp(top - new) + np.exp(s - new)
        out = out * np.exp(top - new) + np.exp(s - new) * value
        top = new
    return out / total
