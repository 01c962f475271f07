"""The public functions.

attention       attention, with lse, and selected weights
backward        gradients of one call, for arrays; torch_operator: the same for tensors, as an operator of torch
statistics      statistics of the weights, without the matrix
explain         what a call would compute, in text and numbers
merge           combines attention over parts of the keys
kv_cache        keys and values cached for decoding
"""
