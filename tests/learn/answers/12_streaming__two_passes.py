"""Two passes over the blocks: the maximum first, then the sums."""

import numpy as np


def streaming(q, k, v, block):
    blocks = [slice(at, at + block) for at in range(0, len(k), block)]
    q = q / np.sqrt(q.shape[1])
    top = np.full((len(q), 1), -np.inf)
    for each in blocks:
        top = np.maximum(top, (q @ k[each].T).max(axis=1, keepdims=True))
    total, out = np.zeros((len(q), 1)), np.zeros((len(q), v.shape[1]))
    for each in blocks:
        exps = np.exp(q @ k[each].T - top)
        total += exps.sum(axis=1, keepdims=True)
        out += exps @ v[each]
    return out / total if blocks else out
