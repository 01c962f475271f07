"""A right answer in another style: recursion."""

import numpy as np


def attention(query, key, value):
    if query.ndim > 2:
        parts = [attention(*each) for each in zip(query, key, value)]
        return np.stack([out for out, _ in parts]), np.stack([w for _, w in parts])
    s = query @ key.T / np.sqrt(query.shape[1])
    w = np.exp(s - s.max(1, keepdims=True))
    w /= w.sum(1, keepdims=True)
    return w @ value, w
