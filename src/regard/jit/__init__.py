"""The CPU engine: attention as kernels that are compiled for the problem and the machine.

    ir        IR as indented Python            target    the machine's vector units
    special   exp2, log2, tanh …               emit      expressions as machine code
    softmax   the running softmax              forward   the kernel
    build     machine code and its cache       threads   the pool            engine    Problem -> kernel -> result
"""

from .engine import solve, tile, why_not

__all__ = ["solve", "tile", "why_not"]
