"""Which tokens a step learns from: a function of the seed and the batch's number alone, so that a run can go on
anywhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache

import torch

from .text import Document
from .vocabulary import Vocabulary

__all__ = ["Windows", "tokens_of"]


def tokens_of(documents: Iterable[Document], vocabulary: Vocabulary) -> torch.Tensor:
    """All documents in one row of tokens, the end of each marked."""
    end = torch.tensor([vocabulary.end])
    return torch.cat(
        [part for document in documents for part in (torch.from_numpy(vocabulary.encode(document.text)), end)]
    )


class Windows:
    """Windows of `context` tokens and their targets, the same tokens one place later.

    The text is a ring. Each epoch cuts it at another place into windows side by side and shuffles them, so that it sees
    every token once. `batch(number)` is always the same for the same number.

    >>> windows = Windows(torch.arange(10), context=4, size=2)
    >>> tokens, targets = windows.batch(0)
    >>> tokens.shape, bool((targets == (tokens + 1) % 10).all())
    (torch.Size([2, 4]), True)
    """

    def __init__(self, tokens: torch.Tensor, context: int, size: int, seed: int = 0):
        self.tokens, self.context, self.size, self.seed = tokens, context, size, seed
        self.count = len(tokens) // context  # of an epoch
        self._starts = lru_cache(maxsize=2)(self._draw)

    def batch(self, number: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Batch number 0, 1, …: tokens (size, context) and targets of the same shape."""
        places = range(number * self.size, (number + 1) * self.size)
        starts = torch.stack([self._starts(place // self.count)[place % self.count] for place in places])
        return self._cut(starts)

    def _draw(self, epoch: int) -> torch.Tensor:
        random = torch.Generator().manual_seed(self.seed * 1_000_003 + epoch)
        first = torch.randint(len(self.tokens), (), generator=random)
        return first + self.context * torch.randperm(self.count, generator=random)

    def _cut(self, starts: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        rows = (starts[:, None] + torch.arange(self.context + 1)) % len(self.tokens)
        found = self.tokens[rows]
        return found[:, :-1], found[:, 1:]

    def in_order(self, most: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """For an evaluation: windows from the first on, in batches, so many at most, spread evenly over the text."""
        count = (len(self.tokens) - 1) // self.context
        chosen = torch.linspace(0, count - 1, min(count, most)).long().unique()
        for some in chosen.split(self.size):
            yield self._cut(some * self.context)
