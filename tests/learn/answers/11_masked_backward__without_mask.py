"""The gradients without a mask, for each row and the keys that it may attend to; placed with np.add.at."""

import numpy as np


def attention_backward(q, k, v, dout):
    scale = q.shape[1] ** -0.5
    scores = scale * q @ k.T
    weights = np.exp(scores - scores.max(1, keepdims=True))
    weights /= weights.sum(1, keepdims=True)
    dweights = dout @ v.T
    dscores = scale * weights * (dweights - (weights * dweights).sum(1, keepdims=True))
    return dscores @ k, dscores.T @ q, weights.T @ dout


def masked_backward(q, k, v, dout, mask):
    total = [np.zeros(each.shape) for each in (q, k, v)]
    for i, row in enumerate(mask):
        places = np.flatnonzero(row)
        if places.size:
            parts = attention_backward(q[i : i + 1], k[places], v[places], dout[i : i + 1])
            for whole, part, where in zip(total, parts, ([i], places, places)):
                np.add.at(whole, where, part)
    return tuple(total)
