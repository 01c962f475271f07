import numpy as np


def measure(weights):
    n = weights.shape[-1]
    query, key = np.indices((n, n))

    def mass(pairs, rows):
        return np.where(pairs, weights, 0).sum((1, 2)) / rows

    with np.errstate(divide="ignore", invalid="ignore"):
        spread = np.nan_to_num(-weights * np.log(weights)).sum((1, 2)) / n
    return np.column_stack([mass(key == query - 1, max(1, n - 1)), mass(key == query, n), mass(key == 0, n), spread])
