"""A sum over the distances."""


def pairs(distances, n):
    return sum(max(n - int(back), 0) for back in distances)
