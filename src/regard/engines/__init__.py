"""Engines: the implementations that compute attention, and how one is selected for a call.

reference   the definition, in float64 NumPy; all other engines are tested against it
jit         CPU kernels, compiled for the expressions of the call
gpu         engines for tensors on other devices
sdpa        PyTorch's scaled_dot_product_attention on the CPU, for comparison
dispatch    selects the CPU or the device implementation of a call
plan        which tiles are empty, full or mixed; cost: operations and bytes of a plan; peak: limits of this machine
"""
