"""A right answer in another style: scale both."""

import numpy as np


def scores(q, k):
    fourth_root = q.shape[-1] ** 0.25
    return np.inner(q / fourth_root, k / fourth_root)
