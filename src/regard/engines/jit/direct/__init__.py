"""Known calls, from their arrays to a kernel in machine code.

table     the calls, as the machine code reads them      library    torch and NumPy: the functions of each
tensors   reading tensors, and the keys of calls         forward    attention of tensors and of arrays
gradients   what the forward pass keeps, and the backward pass
least     the least number of a tensor
"""
