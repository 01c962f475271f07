"""Right answers to the exercises of chapter 10."""

import math
from dataclasses import dataclass
from math import comb

import numpy as np
import torch
from torch import nn


def params__arrays(width, heads, key_heads):
    """Arrays of which only the size is used."""
    wide = np.broadcast_to(0, (width, width))
    narrow = np.broadcast_to(0, (width, key_heads * (width // heads)))
    return wide.size + narrow.size + narrow.size + wide.size


def params__by_head(d, h, g):
    """A loop over the heads."""
    total, depth = 0, d // h
    for _ in range(h):
        total += d * depth + depth * d  # its columns of W_q, its rows of W_o
    for _ in range(g):
        total += 2 * (d * depth)
    return total


def params__float(d, h, g):
    """A division with a slash."""
    return 2 * d * d + 2 * d * d * g / h


def params__torch(d, h, g):
    """The parameters of linear layers on torch's meta device."""
    few = g * (d // h)
    with torch.device("meta"):
        layers = nn.ModuleList([nn.Linear(d, out, bias=False) for out in (d, few, few, d)])
    return sum(each.numel() for each in layers.parameters())


def pairs__binomials(n, w=None):
    """The large triangle less the small one."""
    if w is None or w > n:
        w = n
    return comb(n + 1, 2) - comb(n - w + 1, 2)


def pairs__clip(n, w=None):
    """The number of keys of all rows at once."""
    return np.arange(1, n + 1).clip(max=w if w is not None else n).sum() if n else 0


def pairs__loop(n, w=None):
    """A loop over the rows."""
    total = 0
    for i in range(n):
        total += i + 1 if w is None else min(i + 1, w)
    return total


def pairs__table(n, w=None):
    """A table of positions."""
    back = np.arange(n)[:, None] - np.arange(n)
    return int(((back >= 0) & (back < (w or n))).sum())


def flops__array(n, d, h, g, pairs):
    """An array of the two numbers, from multiply-adds."""
    multiply_adds = np.array([n * 2 * d * (d + g * (d // h)), 2 * d * pairs], dtype=np.int64)
    return tuple(2 * multiply_adds)


def flops__by_head(n, d, h, g, pairs):
    """A loop over the query heads; the result is a list."""
    depth = d // h
    attention = 0
    for _ in range(h):
        attention += 2 * pairs * depth + 2 * pairs * depth
    out = 2 * n * d * d
    return [2 * n * d * d + 2 * (2 * n * d * g * depth) + out, attention]


@dataclass
class Layer:
    width: int
    heads: int
    key_heads: int

    @property
    def depth(self):
        return self.width // self.heads

    @property
    def parameters(self):
        return 2 * self.width * (self.width + self.key_heads * self.depth)


def flops__class(tokens, width, heads, key_heads, pairs):
    """A class with a method for each part."""
    layer = Layer(width, heads, key_heads)
    return 2 * layer.parameters * tokens, 4 * layer.depth * pairs * layer.heads


def flops__shorter(n, d, h, g, pairs):
    """The heads fill the width."""
    return 4 * n * d * d * (h + g) // h, 4 * d * pairs


def kv_bytes__array(n, layers, d, h, g, size):
    """The bytes of an array that has no memory of its own."""
    cache = np.broadcast_to(np.zeros((), f"V{size}"), (layers, 2, g, n, d // h))
    return cache.nbytes


def kv_bytes__loops(n, layers, d, h, g, size):
    """A loop over the layers, kinds and heads."""
    total = 0
    for _layer in range(layers):
        for _kind in ("key", "value"):
            for _head in range(g):
                total += n * (d // h) * size
    return total


def kv_bytes__product(n, layers, d, h, g, size):
    """One product of a list."""
    return math.prod([n, layers, 2, g, d // h, size])


def kv_bytes__share(tokens, layers, width, heads, key_heads, size):
    """A share g / h of the whole."""
    whole = 2 * tokens * layers * width * size
    return whole * key_heads // heads
