"""The CPU engine: attention as kernels that are compiled for the problem and the machine.

engine    Problem -> kernel -> result       arguments  what a kernel is told per call
forward   the loop nest                     tile       rows in memory, lanes in registers
products  the two matrix products           softmax    the running softmax
rules     mask and score on lanes           emit       expressions as machine code
special   exp2, log2, tanh …                ir         IR as indented Python
target    the machine's vector units        build      machine code and its cache on disk
threads   the pool
"""

from .engine import solve, tile_shape, why_not

__all__ = ["solve", "tile_shape", "why_not"]
