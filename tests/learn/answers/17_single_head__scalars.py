"""Scalars in loops."""

import numpy as np


def attention(q, k, v, mask=None, causal=False, scale=None):
    rows, keys = len(q), len(k)
    if scale is None:
        scale = q.shape[1] ** -0.5
    out = np.zeros((rows, v.shape[1]))
    for i in range(rows):
        seen = [j for j in range(keys) if (mask is None or mask[i, j]) and (not causal or j <= i + keys - rows)]
        scores = [sum(a * b for a, b in zip(q[i], k[j])) * scale for j in seen]
        powers = [np.exp(score - max(scores)) for score in scores]
        for power, j in zip(powers, seen):
            out[i] += power / sum(powers) * v[j]
    return out
