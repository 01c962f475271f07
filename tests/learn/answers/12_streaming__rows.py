"""Row by row; each row goes through the blocks."""

import numpy as np


def one_row(query, k, v, block):
    largest, total, out = -np.inf, 0.0, np.zeros(v.shape[1])
    for at in range(0, len(k), block):
        scores = k[at : at + block] @ query / len(query) ** 0.5
        if scores.max() > largest:
            factor = np.exp(largest - scores.max())
            total, out, largest = total * factor, out * factor, scores.max()
        exps = np.exp(scores - largest)
        total += exps.sum()
        out = out + exps @ v[at : at + block]
    return out / total if total else out


def streaming(q, k, v, block):
    return np.array([one_row(row, k, v, block) for row in q]).reshape(len(q), v.shape[1])
