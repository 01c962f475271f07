"""The matrices of an attention layer: q, k and v from its input, and its output from all heads.

layer      the matrices as data, and whether a matrix is one of them, by comparison of numbers
watched    the matrix products of a running torch model, each compared in turn
"""
