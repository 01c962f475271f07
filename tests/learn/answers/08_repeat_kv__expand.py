"""expand and reshape, as in transformers."""


def repeat_kv(k, g):
    b, heads, n, d = k.shape
    return k[:, :, None, :, :].expand(b, heads, g, n, d).reshape(b, heads * g, n, d)
