"""The state in loops, and a row after another."""

import math


def phi(number):
    return number + 1 if number > 0 else math.exp(number)


def linear(q, k, v):
    import numpy as np

    depth, value_depth = q.shape[1], v.shape[1]
    sums = [[0.0] * value_depth for _ in range(depth)]
    total = [0.0] * depth
    for key, value in zip(k, v):
        for i in range(depth):
            f = phi(key[i])
            total[i] += f
            for j in range(value_depth):
                sums[i][j] += f * value[j]
    out = np.zeros((len(q), value_depth))
    for at, row in enumerate(q):
        f = [phi(number) for number in row]
        below = sum(a * b for a, b in zip(f, total))
        for j in range(value_depth):
            out[at, j] = sum(f[i] * sums[i][j] for i in range(depth)) / below
    return out
