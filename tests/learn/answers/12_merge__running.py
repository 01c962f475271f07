"""One part after another, with a running maximum; a class holds the sums."""

import numpy as np


class Sums:
    def __init__(self, rows, columns):
        self.m = np.full(rows, -np.inf)
        self.l = np.zeros(rows)
        self.o = np.zeros((rows, columns))

    def add(self, out, lse):
        seen = ~np.isneginf(lse)
        m = np.maximum(self.m[seen], lse[seen])
        old, new = np.exp(self.m[seen] - m), np.exp(lse[seen] - m)
        self.l[seen] = self.l[seen] * old + new
        self.o[seen] = self.o[seen] * old[:, None] + new[:, None] * out[seen]
        self.m[seen] = m


def merge(parts):
    sums = Sums(*parts[0][0].shape)
    for out, lse in parts:
        sums.add(out, lse)
    empty = sums.l == 0
    total = np.where(empty, 1, sums.l)
    return sums.o / total[:, None], np.where(empty, -np.inf, sums.m + np.log(total))
