"""Position encodings: sinusoidal, learned, rotary (with length scaling), ALiBi, T5 buckets, relative tables."""

from ...common.public import belong
from .position import ALiBi, Buckets, Learned, Position, Relative, Sinusoidal
from .rotary import Rotary
from .scaling import NTK, DynamicNTK, Linear, Llama3, LongRoPE, YaRN

__all__ = [
    "ALiBi",
    "Buckets",
    "DynamicNTK",
    "Learned",
    "Linear",
    "Llama3",
    "LongRoPE",
    "NTK",
    "Position",
    "Relative",
    "Rotary",
    "Sinusoidal",
    "YaRN",
]

belong(__name__)
