import numpy as np


def forbid(scores, query, key):
    n = scores.shape[-1]
    pair = np.zeros((n, n), bool)
    pair[query, key] = True
    masked = np.where(pair, -np.inf, scores)
    top = np.max(masked, axis=2, keepdims=True)
    top[np.isneginf(top)] = 0
    weights = np.exp(masked - top)
    return np.divide(weights, weights.sum(2, keepdims=True), out=np.zeros_like(weights), where=weights > 0)
