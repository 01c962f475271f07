"""The public functions.

attention       attention, with lse, and selected weights
backward        gradients of one call, for arrays; torch_operator: the same for tensors, as an operator of torch
statistics      statistics of the weights, without the matrix
explain         what a call would compute, in text and numbers
part            attention over some of the keys, and how such parts merge
kv_cache        keys and values cached for decoding
"""
