"""Right answers to the exercises of chapter 3."""

import math

import numpy as np
import torch

from regard.engines.reference import scalar


def scalars__library(Q, K, D):
    return scalar.attention_scores(Q, K, scale=1 / D**0.5)


def scalars__loops(Q, K, D):
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


def product(a, b):
    if not a:
        return 0.0
    return a[0] * b[0] + product(a[1:], b[1:])


def scalars__recursion(Q, K, D):
    if not Q:
        return []
    first = [product(Q[0], k) / D**0.5 for k in K]
    return [first, *scalars__recursion(Q[1:], K, D)]


def scalars__scaled_queries(Q, K, D):
    scale = D**-0.5
    queries = [[x * scale for x in q] for q in Q]
    return [[sum(a * b for a, b in zip(q, k)) for k in K] for q in queries]


class Scores:
    def __call__(self, q, k):
        n, d = q.shape
        out = np.empty((n, len(k)))
        for i in range(n):
            out[i] = k @ q[i]
        return out / np.sqrt(d)


scores__class = Scores()


def scores__einsum(q, k):
    return np.einsum("qd,kd->qk", q, k) / np.sqrt(q.shape[1])


def scores__loops(q, k):
    rows = []
    for query in q:
        row = []
        for key in k:
            row.append(sum(float(a) * float(b) for a, b in zip(query, key)) / math.sqrt(len(query)))
        rows.append(row)
    return rows


def scores__torch(q, k):
    q, k = torch.from_numpy(q.copy()), torch.from_numpy(k.copy())
    return (torch.matmul(q, k.T) / q.size(-1) ** 0.5).numpy()
