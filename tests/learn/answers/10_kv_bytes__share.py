"""A share g / h of the whole."""


def kv_bytes(tokens, layers, width, heads, key_heads, size):
    whole = 2 * tokens * layers * width * size
    return whole * key_heads // heads
