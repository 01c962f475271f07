"""Linear attention by einsum."""

import numpy as np


def feature(x):
    """φ: x + 1 for positive numbers, exp(x) for the others."""
    return np.where(x > 0, x + 1, np.exp(np.minimum(x, 0)))


def linear(q, k, v):
    fq, fk = feature(q), feature(k)
    state = np.einsum("kd,ke->de", fk, v)
    total = np.einsum("qd,kd->q", fq, fk, optimize=False)
    return np.einsum("qd,de->qe", fq, state) / total[..., None]
