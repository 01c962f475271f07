"""Attention on other devices, such as graphics cards: planned and lowered here, computed by torch's kernels or in
tiles.
"""

from .block_mask import SIZE
from .choose import choose, why_not
from .device_call import DeviceCall
from .entry import attention, stats, weights

__all__ = ["TILE", "DeviceCall", "attention", "choose", "stats", "weights", "why_not"]

TILE = (SIZE, SIZE)  # rows and keys of what a plan for a card visits
