"""One key after another, with a running maximum."""

import numpy as np


def attend(q, k, v, mask):
    shape = (*q.shape[:-1], 1)
    mask = np.broadcast_to(mask, (*q.shape[:-1], k.shape[-2]))
    largest, total, out = np.full(shape, -np.inf), np.zeros(shape), np.zeros((*q.shape[:-1], v.shape[-1]))
    for j in range(k.shape[-2]):
        allowed = mask[..., j, None]
        score = np.where(allowed, (q * k[..., j, None, :]).sum(-1, keepdims=True) / np.sqrt(q.shape[-1]), -np.inf)
        higher = np.maximum(largest, score)
        base = np.where(np.isneginf(higher), 0, higher)
        old, new = np.exp(largest - base), np.exp(score - base)
        out = out * old + new * np.where(allowed, v[..., j, None, :], 0)
        total, largest = total * old + new, higher
    return out / np.where(total == 0, 1, total)
