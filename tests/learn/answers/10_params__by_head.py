"""A loop over the heads."""


def params(d, h, g):
    total, depth = 0, d // h
    for _ in range(h):
        total += d * depth + depth * d  # its columns of W_q, its rows of W_o
    for _ in range(g):
        total += 2 * (d * depth)
    return total
