"""Attention as an operator of torch: the arguments of `regard.attention`, for tensors."""

from __future__ import annotations

from ..attention import attention

__all__ = ["attention"]
