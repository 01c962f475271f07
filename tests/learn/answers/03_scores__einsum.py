"""A right answer in another style: einsum."""

import numpy as np


def scores(q, k):
    return np.einsum("qd,kd->qk", q, k) / np.sqrt(q.shape[1])
