"""Plain loops over lists."""


def product(rows, matrix):
    return [[sum(a * b for a, b in zip(row, column)) for column in zip(*matrix)] for row in rows]


def project(x, Wq, Wk, Wv):
    q = product(x, Wq)
    k = product(x, Wk)
    v = product(x, Wv)
    return q, k, v
