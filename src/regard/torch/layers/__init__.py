"""Attention as layers: small parts that are put together."""

from .attention import Attention
from .multi_head import MultiHeadAttention
from .self_attention import SelfAttention

__all__ = ["Attention", "MultiHeadAttention", "SelfAttention"]
