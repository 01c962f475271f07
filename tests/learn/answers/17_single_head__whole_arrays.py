"""Without a loop: infinite maxima and sums of 0 are replaced, forbidden values and scores are 0."""

import numpy as np


def attention(q, k, v, mask=None, causal=False, scale=None):
    allowed = np.ones((len(q), len(k)), bool) if mask is None else mask
    if causal:
        allowed = allowed & (np.arange(len(k)) <= np.arange(len(q))[:, None] + len(k) - len(q))
    scale = 1 / np.sqrt(q.shape[1]) if scale is None else scale
    scores = np.where(allowed, q @ k.T * scale, -np.inf)
    largest = scores.max(-1, keepdims=True)
    powers = np.exp(scores - np.where(np.isinf(largest), 0, largest))
    total = powers.sum(-1, keepdims=True)
    weights = powers / np.where(total == 0, 1, total)
    return (weights[..., None] * np.where(allowed[..., None], v, 0)).sum(1)
