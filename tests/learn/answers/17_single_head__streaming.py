"""Key after key, with a maximum and a sum that are corrected."""

import numpy as np


def attention(q, k, v, mask=None, causal=False, scale=None):
    rows, keys = len(q), len(k)
    factor = 1 / q.shape[1] ** 0.5 if scale is None else scale
    out = []
    for row in range(rows):
        largest, total, summed = -np.inf, 0.0, np.zeros(v.shape[1])
        for key in range(keys):
            if mask is not None and not mask[row, key]:
                continue
            if causal and key > row + keys - rows:
                break
            score = q[row] @ k[key] * factor
            new = max(largest, score)
            shrink, power = np.exp(largest - new), np.exp(score - new)
            total, summed, largest = total * shrink + power, summed * shrink + power * v[key], new
        out.append(summed / total if total else summed)
    return np.array(out).reshape(rows, v.shape[1])
