"""Three functions."""

import numpy as np


def table(rows, keys, mask, causal):
    allowed = np.tri(rows, keys, keys - rows, dtype=bool) if causal else np.full((rows, keys), True)
    return allowed if mask is None else np.logical_and(allowed, mask)


def mixed(query, keys, values, factor):
    if not len(keys):
        return np.zeros(values.shape[1])
    logs = keys @ query * factor
    logs = logs - np.logaddexp.reduce(logs)
    return np.exp(logs) @ values


def attention(q, k, v, mask=None, causal=False, scale=None):
    factor = np.sqrt(1 / q.shape[-1]) if scale is None else scale
    allowed = table(len(q), len(k), mask, causal)
    return np.stack([mixed(row, k[seen], v[seen], factor) for row, seen in zip(q, allowed)])
