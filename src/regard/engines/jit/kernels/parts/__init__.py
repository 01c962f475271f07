"""The components of kernels; those of the backward kernel alone are in backward_parts/.

tile        rows in memory, lanes in registers       panels    keys and values in the layout of the products
products    the two matrix products                  softmax   the running softmax
rules       mask and score on lanes                  dropout   which weights are dropped
row_sums    the sums of statistics of rows, and the tree of partial sums
tasks       the loop over the tasks of a call        plan_by_key  the plan of each tile of keys
"""
