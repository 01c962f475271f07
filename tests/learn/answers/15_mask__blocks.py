"""Document by document, each with a mask of its own."""

import numpy as np


def alone(task, given):
    n = len(given)
    if task == "gaps":
        return np.ones((n, n), bool)
    triangle = np.tri(n, dtype=bool)
    if task == "prefix":
        length = int(given.sum())
        triangle[:, :length] = True
    return triangle


def mask(task, document, given):
    out = np.zeros((len(document), len(document)), bool)
    for number in set(document.tolist()):
        own = np.where(document == number)[0]
        out[np.ix_(own, own)] = alone(task, given[own])
    return out
