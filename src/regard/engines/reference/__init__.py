"""The law: attention, its gradients and statistics in float64, independent of every engine that it judges.

attention    forward, weights and backward in NumPy, axis by axis
statistics   what can be asked of the weights
scalar       the same once more, on single numbers with their own autograd
"""
