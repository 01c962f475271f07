"""A loop over the layers, kinds and heads."""


def kv_bytes(n, layers, d, h, g, size):
    total = 0
    for _layer in range(layers):
        for _kind in ("key", "value"):
            for _head in range(g):
                total += n * (d // h) * size
    return total
