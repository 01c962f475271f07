"""Attention layers: subclasses of torch.nn.Module whose attention is computed by regard."""

from ...common.public import belong
from .approximate import Linformer, deviation
from .attention import Attention
from .differential import DifferentialAttention
from .latent import LatentAttention, LatentCache
from .linear import LinearAttention, LinearState, Performer
from .multi_head import MultiHeadAttention
from .recurrent import SegmentMemory, TransformerXL
from .self_attention import SelfAttention

__all__ = [
    "Attention",
    "DifferentialAttention",
    "LatentAttention",
    "LatentCache",
    "LinearAttention",
    "LinearState",
    "Linformer",
    "MultiHeadAttention",
    "Performer",
    "SegmentMemory",
    "SelfAttention",
    "TransformerXL",
    "deviation",
]

belong(__name__)

MultiheadAttention = MultiHeadAttention  # torch's spelling
