"""A loop over the query heads; the result is a list."""


def flops(n, d, h, g, pairs):
    depth = d // h
    attention = 0
    for _ in range(h):
        attention += 2 * pairs * depth + 2 * pairs * depth
    out = 2 * n * d * d
    return [2 * n * d * d + 2 * (2 * n * d * g * depth) + out, attention]
