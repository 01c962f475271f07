"""One triangle less another."""


def triangle(n):
    return n * (n + 1) // 2


def pairs(n, window=None):
    if window is None:
        return triangle(n)
    return triangle(n) - triangle(max(n - window, 0))
