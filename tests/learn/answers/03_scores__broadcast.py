"""A right answer in another style: broadcast."""

import numpy as np


def scores(q, k):
    products = q[:, np.newaxis, :] * k[np.newaxis, :, :]
    return np.sum(products, axis=2) / np.sqrt(q.shape[-1])
