"""A row of keys and a row of values."""


def kv_bytes(n, layers, d, h, g, size):
    depth = d // h
    keys = n * g * depth
    values = n * g * depth
    return layers * (keys + values) * size
