"""One expression, divided at the end."""


def params(d, h, g):
    return 2 * d**2 * (h + g) // h
