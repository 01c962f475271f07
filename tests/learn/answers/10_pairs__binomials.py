"""The large triangle less the small one."""

from math import comb


def pairs(n, w=None):
    if w is None or w > n:
        w = n
    return comb(n + 1, 2) - comb(n - w + 1, 2)
