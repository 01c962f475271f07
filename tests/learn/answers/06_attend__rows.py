"""One row after another, recursively over the axes in front."""

import numpy as np


def attend(q, k, v, mask):
    if q.ndim > 2:
        masks = np.broadcast_to(mask, (*q.shape[:-1], k.shape[-2]))
        parts = [attend(*each) for each in zip(q, k, v, masks)]
        return np.array(parts).reshape(*q.shape[:-1], v.shape[-1])
    out = np.zeros((len(q), v.shape[-1]))
    for row, allowed in enumerate(mask):
        if not allowed.any():
            continue
        scores = k[allowed] @ q[row] / np.sqrt(q.shape[-1])
        weights = np.exp(scores - scores.max())
        out[row] = weights @ v[allowed] / weights.sum()
    return out
