"""Where tokens stand, in each of the usual ways."""

from .learned import Learned
from .position import Position
from .rotary import Rotary
from .scaling import NTK, DynamicNTK, Linear, Llama3, LongRoPE, YaRN
from .sinusoidal import Sinusoidal

__all__ = ["NTK", "DynamicNTK", "Learned", "Linear", "Llama3", "LongRoPE", "Position", "Rotary", "Sinusoidal", "YaRN"]
