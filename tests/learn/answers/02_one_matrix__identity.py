"""The scores of an x that is the identity are M itself."""

import numpy as np


def one_matrix(Wq, Wk):
    x = np.eye(Wq.shape[0])
    return (x @ Wq) @ (x @ Wk).T
