"""With einsum, the axis of the rows last."""

import numpy as np


def streaming(q, k, v, block):
    n, d = q.shape
    m = np.full(n, -np.inf)
    total = np.zeros(n)
    acc = np.zeros((v.shape[-1], n))
    i = 0
    while i < len(k):
        s = np.einsum("kd,qd->kq", k[i : i + block], q) * d**-0.5
        m_new = np.max(np.vstack([m[None], s]), axis=0)
        p = np.exp(s - m_new)
        alpha = np.exp(m - m_new)
        total = alpha * total + p.sum(0)
        acc = alpha * acc + np.einsum("ke,kq->eq", v[i : i + block], p)
        m = m_new
        i += block
    return np.divide(acc, total, out=np.zeros_like(acc), where=total > 0).T
