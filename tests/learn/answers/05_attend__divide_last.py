"""A right answer in another style: divide last."""

import numpy as np


def attend(query, key, value):
    logits = np.matmul(query / np.sqrt(query.shape[-1]), key.T)
    e = np.exp(logits - np.max(logits, axis=1)[:, None])
    return (e @ value) / e.sum(axis=1)[:, None]


_attend = attend


def attend(q, k, v):
    return _attend(q, k, v)
