"""A right answer in another style: map."""

from functools import partial

from regard.engines.reference.scalar import dot


def apply_attention(weights, V):
    columns = list(map(list, zip(*V)))
    return [list(map(partial(dot, row), columns)) for row in weights]
