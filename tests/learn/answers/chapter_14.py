"""Right answers to the exercises of chapter 14."""

import numpy as np


def measure__einsum(w):
    n = w.shape[1]
    before = np.einsum("hii->h", w[:, 1:, :-1]) / max(n - 1, 1)
    same = np.einsum("hii->h", w) / n
    start = np.einsum("hi->h", w[:, :, 0]) / n
    logs = np.log(w, out=np.zeros_like(w), where=w > 0)
    return np.array([before, same, start, -np.einsum("hij,hij->h", w, logs) / n]).T


def forbid__log_sum_exp(scores, query, key):
    s = np.array(scores)
    s[..., query, key] = -np.inf
    lse = np.logaddexp.reduce(s, axis=-1, keepdims=True)
    return np.exp(s - np.where(lse == -np.inf, 0, lse))


def rollout__residual(weights):
    """Half of the shares stay, and half are read by the heads."""
    shares = np.eye(weights.shape[-1], dtype=np.float32)
    for layer in weights.astype(np.float32):
        shares = shares / 2 + layer.mean(axis=0) @ shares / 2
    return shares
