"""Key after key, with weights from lse."""

import numpy as np


def attention_backward(q, k, v, dout):
    scale = q.shape[1] ** -0.5
    scores = q @ k.T * scale
    top = scores.max(1)
    lse = top + np.log(np.exp(scores - top[:, None]).sum(1))
    out = np.exp(scores - lse[:, None]) @ v
    delta = (out * dout).sum(1)
    dq, dk, dv = np.zeros_like(q), [], []
    for key, value in zip(k, v):
        weight = np.exp(q @ key * scale - lse)
        dscore = weight * (dout @ value - delta) * scale
        dv.append(weight @ dout)
        dk.append(dscore @ q)
        dq += np.outer(dscore, key)
    return dq, np.array(dk), np.array(dv)
