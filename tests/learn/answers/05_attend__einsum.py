"""A right answer in another style: einsum."""

import numpy as np


def attend(q, k, v):
    s = np.einsum("id,jd->ij", q, k) / np.sqrt(q.shape[-1])
    w = np.exp(s - s.max(1, keepdims=True))
    w /= w.sum(1, keepdims=True)
    return np.einsum("ij,je->ie", w, v)
