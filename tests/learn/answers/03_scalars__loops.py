"""A right answer in another style: loops."""

import math


def attention_scores(Q, K, D):
    result = []
    for q in Q:
        row = []
        for k in K:
            total = 0
            for a, b in zip(q, k):
                total = total + a * b
            row.append(total / math.sqrt(D))
        result.append(row)
    return result
