"""An object that takes one part after another."""

import numpy as np


class Sums:
    def __init__(self, rows, depth):
        self.m, self.total, self.out = np.full(rows, -np.inf), np.zeros(rows), np.zeros((rows, depth))

    def add(self, out, lse):
        new = np.maximum(self.m, lse)
        some = new > -np.inf
        old, part = np.zeros_like(new), np.zeros_like(new)
        old[some], part[some] = np.exp(self.m[some] - new[some]), np.exp(lse[some] - new[some])
        clean = out.copy()
        clean[part == 0] = 0
        self.total = old * self.total + part
        self.out = old[:, None] * self.out + part[:, None] * clean
        self.m = new

    def result(self):
        some = self.total > 0
        lse = np.full_like(self.m, -np.inf)
        self.out[some] /= self.total[some][:, None]
        lse[some] = self.m[some] + np.log(self.total[some])
        return [self.out, lse]


def merge(parts):
    sums = Sums(*parts[0][0].shape)
    for part in parts:
        sums.add(*part)
    return sums.result()
