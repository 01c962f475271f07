"""A function for a product of matrices."""


def product(rows, inner, columns):
    return 2 * rows * inner * columns


def flops(n, d, h, g, pairs):
    depth = d // h
    projections = sum(product(n, d, columns) for columns in (h * depth, g * depth, g * depth, d))
    scores = h * product(1, depth, pairs)
    values = h * product(1, depth, pairs)
    return projections, scores + values
