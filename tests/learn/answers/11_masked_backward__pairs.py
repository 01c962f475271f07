"""Pair after pair."""

import math

import numpy as np


def masked_backward(q, k, v, dout, mask):
    (rows, depth), keys = q.shape, len(k)
    dq, dk, dv = np.zeros((rows, depth)), np.zeros((keys, depth)), np.zeros(v.shape)
    for i in range(rows):
        seen = [j for j in range(keys) if mask[i, j]]
        if seen == []:
            continue
        scores = {j: float(q[i] @ k[j]) / math.sqrt(depth) for j in seen}
        top = max(scores.values())
        total = sum(math.exp(scores[j] - top) for j in seen)
        weight = {j: math.exp(scores[j] - top) / total for j in seen}
        delta = sum(weight[j] * (dout[i] @ v[j]) for j in seen)
        for j in seen:
            ds = weight[j] * (dout[i] @ v[j] - delta) / math.sqrt(depth)
            dq[i] += ds * k[j]
            dk[j] += ds * q[i]
            dv[j] += weight[j] * dout[i]
    return dq, dk, dv
