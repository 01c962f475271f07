"""Right answers to the exercises of chapter 3."""

import numpy as np

from regard.engines.reference import scalar


def scalars__library(Q, K, D):
    return scalar.attention_scores(Q, K, scale=1 / D**0.5)


class Scores:
    def __call__(self, q, k):
        n, d = q.shape
        out = np.empty((n, len(k)))
        for i in range(n):
            out[i] = k @ q[i]
        return out / np.sqrt(d)


scores__class = Scores()
