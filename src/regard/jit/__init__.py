"""The CPU engine: attention as kernels that are compiled for the problem and the machine.

engine    Problem -> kernel -> result       arguments  what a kernel is told per call
forward   the loop nest                     tile       rows in memory, lanes in registers
backward  the loop nest of gradients        gradients  forward pass, dout -> gradients
multiply  its matrix product                pullback   its part between the products, element by element
staging   rows in and out of its memory     turns      who may add when
visitors  a plan seen from the keys         statistics what is asked of the weights, in one pass or two
sweep     what passes over scores share     statistics_rows, statistics_keys   these passes
products  the two matrix products           softmax    the running softmax
rules     mask and score on lanes           emit       expressions as machine code
special   exp2, log2, tanh …                ir         IR as indented Python
target    the machine's vector units        build      machine code and its cache on disk
threads   the pool
"""

from .engine import keep, solve, tile_shape, why_not
from .gradients import kept, pull_back

__all__ = ["keep", "kept", "pull_back", "solve", "tile_shape", "why_not"]
