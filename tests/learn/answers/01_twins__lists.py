"""Lists of Python: the last entry becomes the first."""


def twins(n):
    keys = [[1 if row == column else 0 for column in range(n)] for row in range(n)]
    first = [[row + 1] * n for row in range(n)]
    return keys, first, first[-1:] + first[:-1]
