"""The denominator as one more column of the values, all ones; recursion over the blocks."""

import numpy as np


def streaming(q, k, v, block):
    values = np.concatenate([v, np.ones((len(v), 1))], axis=1)

    def sums(start):
        """The maximum and the sums of all blocks before `start`."""
        if start <= 0:
            return np.full((len(q), 1), -np.inf), np.zeros((len(q), values.shape[1]))
        here = slice(start - block, start)
        before, sum_before = sums(start - block)
        scores = q @ k[here].T / np.sqrt(q.shape[1])
        largest = np.maximum(before, scores.max(1, keepdims=True))
        return largest, np.exp(before - largest) * sum_before + np.exp(scores - largest) @ values[here]

    _, found = sums(-(-len(k) // block) * block)
    return found[:, :-1] / np.maximum(found[:, -1:], 1e-300)
