"""Attention as layers: small parts that are put together."""

from .attention import Attention
from .differential import DifferentialAttention
from .latent import LatentAttention
from .latent_cache import LatentCache
from .multi_head import MultiHeadAttention
from .self_attention import SelfAttention

__all__ = ["Attention", "DifferentialAttention", "LatentAttention", "LatentCache", "MultiHeadAttention", "SelfAttention"]
