"""The components of kernels; those of the backward kernel alone are in backward_parts/.

tile        rows in memory, lanes in registers       panels    keys and values in the layout of the products
products    the two matrix products                  softmax   the running softmax
rules       mask and score on lanes                  dropout   which weights are dropped
tasks       the loop over the tasks of a call, and the tree of partial sums
plan_by_key  the plan of each tile of keys
"""
