"""The components of the backward kernel.

pullback      weights and gradients of scores, element by element   products    the matrix product
staging       loads and stores of rows                              ordered_adds  additions in a fixed order
partial_sums  dK and dV by blocks of positions                      table_sums  gradients of tables by such blocks
"""
