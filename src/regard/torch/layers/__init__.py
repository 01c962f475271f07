"""Attention as layers: small parts that are put together."""

from .approximate import Deviation, deviation
from .attention import Attention
from .differential import DifferentialAttention
from .latent import LatentAttention
from .latent_cache import LatentCache
from .linear import LinearAttention, LinearState, linear_attention
from .linformer import Linformer
from .multi_head import MultiHeadAttention
from .performer import Performer
from .recurrent import SegmentMemory, TransformerXL
from .self_attention import SelfAttention

__all__ = [
    "Attention", "Deviation", "DifferentialAttention", "LatentAttention", "LatentCache", "LinearAttention", "LinearState", "Linformer",
    "MultiHeadAttention", "Performer", "SegmentMemory", "SelfAttention", "TransformerXL", "deviation", "linear_attention",
]  # fmt: skip
