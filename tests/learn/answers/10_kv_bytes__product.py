"""One product of a list."""

import math


def kv_bytes(n, layers, d, h, g, size):
    return math.prod([n, layers, 2, g, d // h, size])
