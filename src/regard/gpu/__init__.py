"""Attention on other devices, such as graphics cards: planned and lowered here, computed by torch's kernels or in tiles."""
