"""Attention on other devices, such as GPUs: planned and lowered here, computed by PyTorch kernels or in tiles."""

from .choose import choose, why_not
from .device_call import DeviceCall
from .entry import attend, explained, statistics, weights

__all__ = ["DeviceCall", "attend", "choose", "explained", "statistics", "weights", "why_not"]
