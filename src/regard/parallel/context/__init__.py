"""Context parallel: the tokens of one sequence are divided over ranks, and the result is bit-identical to one process.

prepare    what a rank is about to compute, with all checks, before anything is exchanged
routes     the checked call over the whole sequence; which pages travel for its mask, and which rows each rank computes
pages      the arrays of a rank, checked; keys and values as pages at their positions; DTensors
forward    keys and values to the ranks that need them, stripe by stripe of heads, and attention of own rows
backward   gradients; sums over the rows of several ranks are merged in the tree of law 11
attention  the functions for tensors and arrays; autograd: as a node of torch's autograd
on_devices the same for tensors on GPUs, run on one, never on several
statistics the same for statistics of the weights
"""
