"""The reference: attention, its gradients and statistics in float64, independent of the engines tested against it.

attention    forward pass, weights and backward pass in NumPy
statistics   the statistics of the weights
scalar       self-attention on single numbers, with autograd, without NumPy
"""
