"""A right answer in another style: loops."""

from regard.engines.reference.scalar import Value


def apply_attention(weights, V):
    out = []
    for row in weights:
        total = [Value(0.0) for _ in V[0]]
        for weight, value in zip(row, V):
            total = [t + weight * x for t, x in zip(total, value)]
        out.append(total)
    return out
