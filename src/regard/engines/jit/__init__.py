"""The CPU engine: attention as kernels that are compiled for the problem and the machine.

engine      Problem -> kernel -> result                  gradients   the same for a backward pass
statistics  what is asked of the weights                 decode      steps over pages of keys, prepared once for many
tiling      how many rows a task has, and which lanes

kernels/    the loop nests, and the parts that they are made of
code/       expressions and loops as machine code
run/        a kernel on several threads
"""

from .code.target import description, host
from .engine import Recipe, Saved, keep, recipe_of, run, solve, tile_shape, why_not
from .gradients import kept, pull_back
from .run import threads

__all__ = [
    "Recipe",
    "Saved",
    "description",
    "host",
    "keep",
    "kept",
    "pull_back",
    "recipe_of",
    "run",
    "solve",
    "threads",
    "tile_shape",
    "why_not",
]
