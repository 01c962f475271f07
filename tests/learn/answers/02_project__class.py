"""A class that keeps one matrix, row by row."""

import numpy as np


class Projection:
    def __init__(self, matrix):
        self.matrix = matrix

    def of(self, tokens):
        result = np.zeros((len(tokens), self.matrix.shape[1]))
        for number, token in enumerate(tokens):
            result[number] = np.dot(token, self.matrix)
        return result


def project(x, Wq, Wk, Wv):
    return Projection(Wq).of(x), Projection(Wk).of(x), Projection(Wv).of(x)
