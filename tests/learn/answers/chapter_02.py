"""Right answers to the exercises of chapter 2."""

import numpy as np
import torch
from torch.nn import functional


class Projection:
    def __init__(self, matrix):
        self.matrix = matrix

    def of(self, tokens):
        result = np.zeros((len(tokens), self.matrix.shape[1]))
        for number, token in enumerate(tokens):
            result[number] = np.dot(token, self.matrix)
        return result


def project__class(x, Wq, Wk, Wv):
    """A class that keeps one matrix, row by row."""
    return Projection(Wq).of(x), Projection(Wk).of(x), Projection(Wv).of(x)


def product(rows, matrix):
    return [[sum(a * b for a, b in zip(row, column)) for column in zip(*matrix)] for row in rows]


def project__loops(x, Wq, Wk, Wv):
    """Plain loops over lists."""
    q = product(x, Wq)
    k = product(x, Wk)
    v = product(x, Wv)
    return q, k, v


def project__torch(x, Wq, Wk, Wv):
    """torch.nn.functional.linear, whose weights are (out, in)."""
    tokens = torch.from_numpy(x.copy())
    return tuple(functional.linear(tokens, torch.from_numpy(W.copy()).T) for W in (Wq, Wk, Wv))


def project__transposes(x, Wq, Wk, Wv):
    """Vectors as columns, transposed back; a generator."""
    for weight in (Wq, Wk, Wv):
        yield np.transpose(weight.T @ x.T)


def one_matrix__einsum(Wq, Wk):
    """Einsum over the depth."""
    return np.einsum("ad,bd->ab", Wq, Wk)


def one_matrix__identity(Wq, Wk):
    """The scores of an x that is the identity are M itself."""
    x = np.eye(Wq.shape[0])
    return (x @ Wq) @ (x @ Wk).T


def one_matrix__loops(Wq, Wk):
    """A dot product for each pair of rows."""
    return [[float(sum(a * b for a, b in zip(left, right))) for right in Wk] for left in Wq]


def one_matrix__torch(Wq, Wk):
    """torch.matmul."""
    q, k = (torch.tensor(each) for each in (Wq, Wk))
    return torch.matmul(q, k.mT)
