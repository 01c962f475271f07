"""Attention on other devices, such as GPUs: planned and lowered here, computed by PyTorch kernels or in tiles."""

from .device_call import DeviceCall
from .entry import attend, choose, explained, statistics, weights, why_not

__all__ = ["DeviceCall", "attend", "choose", "explained", "statistics", "weights", "why_not"]
