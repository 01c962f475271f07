"""Position encodings: sinusoidal, learned, rotary (with length scaling), ALiBi, T5 buckets, relative tables."""

from ...common.public import belong
from .alibi import ALiBi
from .learned import Learned
from .longrope import LongRoPE
from .position import Position
from .relative import Buckets, Relative
from .rotary import Rotary
from .scaling import NTK, DynamicNTK, Linear, Llama3, YaRN
from .sinusoidal import Sinusoidal

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
