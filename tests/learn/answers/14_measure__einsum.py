import numpy as np


def measure(w):
    n = w.shape[1]
    before = np.einsum("hii->h", w[:, 1:, :-1]) / max(n - 1, 1)
    same = np.einsum("hii->h", w) / n
    start = np.einsum("hi->h", w[:, :, 0]) / n
    logs = np.log(w, out=np.zeros_like(w), where=w > 0)
    return np.array([before, same, start, -np.einsum("hij,hij->h", w, logs) / n]).T
