"""Attention on other devices, such as graphics cards: planned and lowered here, computed by torch's kernels or in tiles."""

from .attention import attention, stats, weights
from .call import Call
from .choice import choose, why_not

__all__ = ["Call", "attention", "choose", "stats", "weights", "why_not"]
