"""Attention as layers: small parts that are put together."""

from .approximate import deviation
from .attention import Attention
from .differential import DifferentialAttention
from .latent import LatentAttention
from .latent_cache import LatentCache
from .linear import LinearAttention, LinearState
from .linformer import Linformer
from .multi_head import MultiHeadAttention
from .performer import Performer
from .recurrent import SegmentMemory, TransformerXL
from .self_attention import SelfAttention

__all__ = [
    "Attention", "DifferentialAttention", "LatentAttention", "LatentCache", "LinearAttention", "LinearState", "Linformer",
    "MultiHeadAttention", "Performer", "SegmentMemory", "SelfAttention", "TransformerXL", "deviation",
]  # fmt: skip
