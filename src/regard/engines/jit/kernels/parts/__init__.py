"""What kernels are put together from.

tile           rows in memory, lanes in registers         panels           keys and values in the form of the products
products       the two matrix products                    scratch_product  the matrix product of a backward pass
softmax        the running softmax                        rules            mask and score on lanes
dropout        which weights are dropped                  staging          rows in and out of a backward pass
backward_tile  its part between the products              ordered_adds     who may add when
plan_by_key    a plan seen from the keys                  tasks            what threads take from one counter
"""
