"""A right answer in another style: sums."""


def apply_attention(weights, V):
    return [[sum(w * V[j][c] for j, w in enumerate(row)) for c in range(len(V[0]))] for row in weights]
