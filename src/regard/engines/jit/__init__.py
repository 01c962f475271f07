"""Engine "jit": attention on the CPU, by kernels compiled for the problem and the machine.

engine      forward pass                                 gradients   backward pass
statistics  statistics of the weights                    decode      decoding over paged keys and values
tiling      query rows and lanes of a task; tiles without weights
gradient_sums  order of the sums of a backward pass, and gradients of arrays that a score reads
gather      rows of keys, copied next to each other
launch      a call: its tasks, working memory and lifetimes
threads     number and choice of threads                 pool        worker threads that wait in machine code

kernels/    the loop nests, and the parts that they are composed of
direct/     known calls of torch, from their tensors to a kernel in machine code
code/       expressions and loops as machine code
"""

from . import threads
from .code.target import description, host
from .engine import LARGEST, keep, recipe_of, run, solve, tile_shape, too_large, why_not
from .gradients import kept, pull_back
from .gradients import recipe_of as backward_recipe
from .launch import Workspace

__all__ = [
    "LARGEST",
    "Workspace",
    "backward_recipe",
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
    "too_large",
    "why_not",
]
