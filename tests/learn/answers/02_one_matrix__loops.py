"""A dot product for each pair of rows."""


def one_matrix(Wq, Wk):
    return [[float(sum(a * b for a, b in zip(left, right))) for right in Wk] for left in Wq]
