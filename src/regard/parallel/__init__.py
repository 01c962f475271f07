"""Several devices: which rank holds which tokens of one sequence, which rank computes which rows, and what travels.

place       tries layouts on the plan of a mask (contiguous, zig-zag, striped, …), and takes the fastest by a model
work        what there is to do: sizes, pages, the pairs of each block of rows; what travels; both as a time
placement   the result: frozen data, and files
explain     what a placement means for each rank: words, data, a figure of characters, and an image
context     attention over the processes of torch.distributed: one sequence, divided over ranks
decoding    a cache of keys and values whose positions are spread over ranks
heads       which heads a rank computes; Ulysses: some tokens of all heads ↔ all tokens of some heads
head_parallel  HeadParallel, for torch's parallelize_module, the layers that it makes, and their sums over ranks
exchange    how ranks send arrays, agree, and find out who is lost
sequence    transformers models whose sequence is divided over ranks, sums of their gradients, tables of their rules
torchrun    starts this command once for each rank
"""

import importlib
from typing import TYPE_CHECKING, Any

from ..common.optional import requires_extra
from ..common.public import belong, belongs, no_attribute
from .context.attention import attention, attention_with_lse
from .context.statistics import attention_stats
from .decoding import KVCache, spread
from .exchange import Lost
from .explain import Explanation, explain
from .heads import Heads, heads
from .place import place
from .placement import Placement
from .sequence import sequence, sum_over_ranks, whole
from .work import Candidate, Sizes

if TYPE_CHECKING:
    from .head_parallel import HeadParallel

__all__ = [
    "Candidate",
    "Explanation",
    "HeadParallel",
    "Heads",
    "KVCache",
    "Lost",
    "Placement",
    "Sizes",
    "attention",
    "attention_stats",
    "attention_with_lse",
    "explain",
    "heads",
    "place",
    "sequence",
    "spread",
    "sum_over_ranks",
    "whole",
]

belong(__name__)


def __getattr__(name: str) -> Any:
    if name != "HeadParallel":
        raise no_attribute(__name__, name)
    with requires_extra("regard.parallel.HeadParallel", "torch"):  # the rest of the package needs no torch
        return belongs(importlib.import_module(".head_parallel", __name__).HeadParallel, __name__)
