"""A class with a method for each part."""

from dataclasses import dataclass


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


def flops(tokens, width, heads, key_heads, pairs):
    layer = Layer(width, heads, key_heads)
    return 2 * layer.parameters * tokens, 4 * layer.depth * pairs * layer.heads
