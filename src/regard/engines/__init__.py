"""What computes an attention.

reference   the law, in float64 NumPy, which judges all others
jit         kernels for this CPU, compiled for the expression
gpu         torch's kernels on graphics cards
sdpa        torch's own attention on the CPU, to compare with
dispatch    which of them takes a call
plan        which tiles are empty, full or mixed; cost: the work that follows; peak: what this machine can do
"""

from .dispatch import ENGINES, Saved, choose, keep, pull_back, solve, why_not

__all__ = ["ENGINES", "Saved", "choose", "keep", "pull_back", "solve", "why_not"]
