import numpy as np


def rollout(weights):
    """Each token is followed from the last layer down to the first."""
    n = weights.shape[-1]
    rows = []
    for token in range(n):
        share = np.zeros(n)
        share[token] = 1
        for layer in reversed(weights):
            share = 0.5 * share + 0.5 * sum(share @ head for head in layer) / len(layer)
        rows.append(share)
    return np.stack(rows)
