"""Several devices: which rank holds which tokens of one sequence, which rank computes which rows, and what travels.

place       tries the candidates on the plan of a mask, and takes the one with the least modelled time
work        what there is to do: sizes, pages, and the pairs of each block of rows
traffic     which rows change their rank, which pages each rank needs, and bytes; pairs and bytes as a time
placement   the result: frozen data, and files
explain     what a placement means for each rank: words, data, a figure of characters, and an image
context     attention over the processes of torch.distributed: one sequence, divided over ranks
decoding    a cache of keys and values whose positions are spread over ranks; decoding_reader: attention over them
heads       which heads a rank computes; Ulysses: some tokens of all heads ↔ all tokens of some heads
head_parallel  HeadParallel, for torch's parallelize_module, and the layers that it makes
exchange    how ranks send arrays, agree, and find out who is lost
sequence    layouts: contiguous, zig-zag, striped and balanced; transformers models whose sequence is divided over ranks
sums        gradients and losses, added in the order of the ranks
whole_tables  arrays that rules read, from the tokens that each rank holds
torchrun    starts this command once for each rank
"""

import importlib
from typing import TYPE_CHECKING, Any

from ..common.optional import requires_extra
from ..common.public import belong, belongs, no_attribute
from .context.attention import attention, attention_with_lse
from .context.statistics import attention_stats
from .decoding import KVCache, spread
from .exchange.transport import Lost
from .explain import Explanation, explain
from .heads import Heads, heads
from .place import place
from .placement import Placement
from .sequence import sequence
from .sums import sum_over_ranks
from .traffic import Candidate
from .whole_tables import whole
from .work import Sizes

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
