"""A right answer in another style: class."""

import numpy as np


class Scores:
    def __call__(self, q, k):
        n, d = q.shape
        out = np.empty((n, len(k)))
        for i in range(n):
            out[i] = k @ q[i]
        return out / np.sqrt(d)


scores = Scores()
