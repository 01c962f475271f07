"""A division with a slash."""


def params(d, h, g):
    return 2 * d * d + 2 * d * d * g / h
