"""Attention as layers: small parts that are put together."""

from .attention import Attention

__all__ = ["Attention"]
