"""With einsum and np.tri."""

import numpy as np


def step(cache, q, k, v):
    keys, values = (np.append(old, new, axis=1) for old, new in zip(cache, (k, v)))
    total, rows = keys.shape[1], q.shape[1]
    s = np.einsum("hqd,hkd->hqk", q, keys) / q.shape[-1] ** 0.5
    s[:, ~np.tri(rows, total, total - rows, dtype=bool)] = -np.inf
    p = np.exp(s - s.max(axis=-1)[..., None])
    return np.einsum("hqk,hke->hqe", p, values) / p.sum(axis=-1)[..., None], (keys, values)
