"""The last row, and the text before it."""


def pairs(distances, n):
    if not len(distances):
        return 0
    return pairs(distances[1:], n) + len(range(int(distances[0]), n))
