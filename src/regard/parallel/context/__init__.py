"""Context parallel: the tokens of one sequence are divided over ranks, and the result is bit-identical to one process.

prepare    what a rank is about to compute, with all checks, before anything is exchanged; DTensors
routes     which pages travel for a mask, and which rows each rank computes; sums over rows as a tree
forward    keys and values to the ranks that need them, stripe by stripe of heads, and attention of own rows
backward   gradients, as a node of torch's autograd; sums over the rows of ranks are merged in the tree of law 11
attention  the functions for tensors and arrays
on_devices the same for tensors on GPUs, run on one, never on several
statistics the same for statistics of the weights
"""
