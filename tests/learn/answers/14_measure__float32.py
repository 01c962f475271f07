"""Computed in numbers of 32 bits, head by head."""

import numpy as np


class Head:
    def __init__(self, weights):
        self.weights, self.n = weights, len(weights)

    def mass(self, offset):
        return np.trace(self.weights, offset) / max(self.n + offset, 1)

    def entropy(self):
        p = self.weights[self.weights > 0]
        return -(p * np.log(p)).sum() / self.n

    def four(self):
        return self.mass(-1), self.mass(0), self.weights[:, 0].sum() / self.n, self.entropy()


def measure(weights):
    return np.array([Head(head).four() for head in weights.astype(np.float32)], np.float32)
