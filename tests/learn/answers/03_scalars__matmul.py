"""A right answer in another style: matmul."""

import math

from regard.engines.reference.scalar import matmul


def attention_scores(Q, K, D):
    columns = list(zip(*K))
    return [[entry * (1 / math.sqrt(D)) for entry in row] for row in matmul(Q, columns)]
