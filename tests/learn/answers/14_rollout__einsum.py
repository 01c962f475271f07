import numpy as np


def rollout(a):
    layers, heads, n, _ = a.shape
    out = np.identity(n)
    for layer in range(layers):
        step = np.einsum("hij->ij", a[layer]) / heads
        step[np.diag_indices(n)] += 1
        out = np.einsum("ij,jk->ik", step, out) / 2
    return out
