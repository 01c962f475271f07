"""The components of kernels.

tile           rows in memory, lanes in registers         panels           keys and values in the layout of the products
products       the two matrix products of a forward pass  scratch_product  the matrix product of a backward pass
softmax        the running softmax                        rules            mask and score on lanes
dropout        which weights are dropped                  staging          loads and stores of a backward pass
backward_tile  element-wise part of a backward pass       ordered_adds     additions in a deterministic order
plan_by_key    the plan of each tile of keys              tasks            the loop over the tasks of a call
tree           the tree of partial sums                   row_sums         the sums of statistics of rows
tree           the order of sums over blocks              partial_sums     dK and dV by blocks of positions
table_sums     gradients of tables by blocks of positions
"""
