"""A loop over the heads."""


def split(x, h):
    depth = x.size(2) // h
    out = x.new_empty(x.size(0), h, x.size(1), depth)
    for head in range(h):
        out[:, head] = x[:, :, head * depth : (head + 1) * depth]
    return out
