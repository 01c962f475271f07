"""Heads over ranks: tensor parallel (which heads a rank computes, and layers that compute them), and Ulysses.

split    which query heads and key heads a rank has; Ulysses: some tokens of all heads ↔ all tokens of some heads
style    HeadParallel, for torch's parallelize_module: leaves in each layer the heads of this rank
layers   layers with some heads of a whole one
sums     sums over ranks, in the order of the ranks, with gradients
"""
