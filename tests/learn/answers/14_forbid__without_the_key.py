import numpy as np


def softmax(scores):
    if scores.shape[-1] == 0:
        return scores
    largest = scores.max(-1, keepdims=True)
    exps = np.exp(scores - np.where(np.isfinite(largest), largest, 0))
    return exps / np.maximum(exps.sum(-1, keepdims=True), 1e-300)


def forbid(scores, query, key):
    """The row is computed from the other keys only."""
    weights = softmax(scores)
    others = np.delete(np.arange(scores.shape[-1]), key)
    weights[:, query, :] = 0
    weights[:, query, others] = softmax(scores[:, query, others])
    return weights
