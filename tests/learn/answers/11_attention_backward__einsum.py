"""With einsum; the scale is in the queries, and a list is returned."""

import numpy as np


def attention_backward(q, k, v, dout):
    root = np.sqrt(q.shape[-1])
    queries = q / root
    scores = np.einsum("id,jd->ij", queries, k)
    p = np.exp(scores - np.max(scores, axis=1, keepdims=True))
    p /= np.sum(p, axis=1, keepdims=True)
    dp = np.einsum("ie,je->ij", dout, v)
    ds = p * (dp - np.einsum("ij,ij->i", p, dp)[:, None])
    return [
        np.einsum("ij,jd->id", ds, k) / root,
        np.einsum("ij,id->jd", ds, queries),
        np.einsum("ij,ie->je", p, dout),
    ]
