"""The rows that grow, and the rows that are full."""


def pairs(n, w=None):
    if w is None or w > n:
        w = n
    return sum(range(1, w)) + w * (n - w + 1) if n else 0
