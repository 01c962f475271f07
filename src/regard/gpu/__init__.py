"""Attention on other devices, such as graphics cards: planned and lowered here, computed by torch's kernels or in tiles."""

from .attention import attention, stats, weights
from .blocks import SIZE
from .call import Call
from .choice import choose, why_not

__all__ = ["TILE", "Call", "attention", "choose", "stats", "weights", "why_not"]

TILE = (SIZE, SIZE)  # rows and keys of what a plan for a card visits
