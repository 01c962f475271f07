"""The components of the backward kernel.

pullback      weights and gradients of scores, element by element   products    the matrix product
staging       loads and stores of rows
table_sums    additions in a fixed order: dK, dV and gradients of tables by blocks of positions
"""
