"""A sum of outer products: one for each property that is compared."""

import numpy as np


def one_matrix(Wq, Wk):
    total = np.zeros((len(Wq), len(Wk)))
    for queries, keys in zip(Wq.T, Wk.T):
        total += np.outer(queries, keys)
    return total
