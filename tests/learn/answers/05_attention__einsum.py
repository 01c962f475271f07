"""A right answer in another style: einsum."""

import numpy as np


def attention(query, key, value):
    s = np.einsum("...id,...jd->...ij", query, key) / query.shape[-1] ** 0.5
    w = np.exp(s - s.max(-1, keepdims=True))
    w = w / w.sum(-1, keepdims=True)
    return np.einsum("...ij,...je->...ie", w, value), w
