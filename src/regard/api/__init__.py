"""What people call.

attention       attention, with lse, and chosen weights; fast_path: calls like one before, straight to their kernel
backward        gradients of one call, for arrays; torch_operator: the same for tensors, as an operator of torch
statistics      statistics of the weights, without the matrix
explain         what a call would do, in words and numbers
merge           attention over parts of the keys, put together
kv_cache        keys and values kept for decoding
"""
