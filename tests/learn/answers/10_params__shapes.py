"""The shapes of the four matrices."""

import math


def params(d, h, g):
    depth = d // h
    shapes = [(d, h * depth), (d, g * depth), (d, g * depth), (h * depth, d)]
    return sum(math.prod(shape) for shape in shapes)
