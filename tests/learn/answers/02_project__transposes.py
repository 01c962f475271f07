"""Vectors as columns, transposed back; a generator."""

import numpy as np


def project(x, Wq, Wk, Wv):
    for weight in (Wq, Wk, Wv):
        yield np.transpose(weight.T @ x.T)
