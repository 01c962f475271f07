"""A class, whose object is the function; the softmax is a function of its own."""

import numpy as np


class Attention:
    def __call__(self, queries, keys, values, allowed):
        depth = queries.shape[-1]
        weights = self.softmax(np.where(allowed, np.matmul(queries, keys.swapaxes(-2, -1)) / depth**0.5, -np.inf))
        clean = np.where(allowed[..., :, :, None], values[..., None, :, :], 0)
        return np.matmul(weights[..., None, :], clean)[..., 0, :]

    @staticmethod
    def softmax(scores):
        highest = np.nan_to_num(scores.max(-1, keepdims=True), neginf=0.0, nan=np.nan)
        powers = np.exp(scores - highest)
        sums = powers.sum(-1, keepdims=True)
        return powers / (sums + (sums == 0))


def attend(q, k, v, mask):
    return Attention()(q, k, v, mask)
