"""Lists and numbers: each row goes through the blocks."""

import math

import numpy as np


def streaming(q, k, v, block):
    rows = []
    for row in q.tolist():
        m, total, sums = -math.inf, 0.0, [0.0] * v.shape[1]
        for at in range(0, len(k), block):
            keys, values = k[at : at + block].tolist(), v[at : at + block].tolist()
            scores = [sum(a * b for a, b in zip(row, key)) / math.sqrt(len(row)) for key in keys]
            new = max(m, *scores)
            factor, exps = math.exp(m - new), [math.exp(score - new) for score in scores]
            total = total * factor + sum(exps)
            sums = [each * factor + sum(e * value[i] for e, value in zip(exps, values)) for i, each in enumerate(sums)]
            m = new
        rows.append([each / total if total else 0.0 for each in sums])
    return np.array(rows).reshape(len(q), v.shape[1])
