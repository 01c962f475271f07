"""Arrays of which only the size is used."""

import numpy as np


def params(width, heads, key_heads):
    wide = np.broadcast_to(0, (width, width))
    narrow = np.broadcast_to(0, (width, key_heads * (width // heads)))
    return wide.size + narrow.size + narrow.size + wide.size
