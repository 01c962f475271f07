"""A loop over the rows."""


def pairs(n, w=None):
    total = 0
    for i in range(n):
        total += i + 1 if w is None else min(i + 1, w)
    return total
