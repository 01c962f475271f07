"""The heads fill the width."""


def flops(n, d, h, g, pairs):
    return 4 * n * d * d * (h + g) // h, 4 * d * pairs
