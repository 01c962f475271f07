"""Known calls, from their arrays to a kernel in machine code.

table     the calls, as the machine code reads them      code       the functions
tensors   reading tensors, and the keys of calls         forward    attention
gradients   what the forward pass keeps, and the backward pass
least     the least number of a tensor              arrays     the same for NumPy's arrays
library   what is known of torch and of NumPy
"""
