"""Batches of token windows, a deterministic function of seed and batch number, so that training can be resumed at any
step.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache

import torch

from .text import Document
from .vocabulary import Vocabulary


def tokens_of(documents: Iterable[Document], vocabulary: Vocabulary) -> torch.Tensor:
    """Encodes documents into one sequence of tokens, with the end-of-document token after each.

    Args:
        documents: the documents.
        vocabulary: the vocabulary that encodes them.

    Returns:
        (N,) int64 tokens.

    Examples:
        >>> from regard.models.data.vocabulary import Bytes
        >>> tokens_of([Document("a", "hi"), Document("b", "you")], Bytes()).tolist()
        [104, 105, 256, 121, 111, 117, 256]
    """
    end = torch.tensor([vocabulary.end])
    return torch.cat(
        [part for document in documents for part in (torch.from_numpy(vocabulary.encode(document.text)), end)]
    )


class Windows:
    """Shuffled windows of a token sequence, with the next token at every position as target.

    The sequence is treated as a ring. Each epoch splits it into adjacent windows from a random start and shuffles them,
    so every token occurs once per epoch, except for a remainder shorter than a window.

    Args:
        tokens: (N,) tokens.
        context: number of tokens per window.
        size: number of windows per batch.
        seed: seed of the random starts and orders.

    Examples:
        >>> windows = Windows(torch.arange(10), context=4, size=2)
        >>> tokens, targets = windows.batch(0)
        >>> tokens.shape, bool((targets == (tokens + 1) % 10).all())
        (torch.Size([2, 4]), True)
    """

    def __init__(self, tokens: torch.Tensor, context: int, size: int, seed: int = 0):
        self.tokens, self.context, self.size, self.seed = tokens, context, size, seed
        self.count = len(tokens) // context  # windows per epoch
        self._starts = lru_cache(maxsize=2)(self._draw)

    def batch(self, number: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns a batch; the same number always gives the same batch.

        Args:
            number: the batch number, from 0.

        Returns:
            Tokens (size, context), and targets of the same shape.
        """
        windows = range(number * self.size, (number + 1) * self.size)
        starts = torch.stack([self._starts(window // self.count)[window % self.count] for window in windows])
        return self._cut(starts)

    def _draw(self, epoch: int) -> torch.Tensor:
        random = torch.Generator().manual_seed(self.seed * 1_000_003 + epoch)
        first = torch.randint(len(self.tokens), (), generator=random)
        return first + self.context * torch.randperm(self.count, generator=random)

    def _cut(self, starts: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        rows = (starts[:, None] + torch.arange(self.context + 1)) % len(self.tokens)
        windows = self.tokens[rows]
        return windows[:, :-1], windows[:, 1:]

    def in_order(self, most: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Iterates over windows for evaluation, in order and evenly spaced over the sequence.

        Args:
            most: maximum number of windows.

        Returns:
            An iterator over batches: tokens and targets, each (up to `size`, context).
        """
        count = (len(self.tokens) - 1) // self.context
        chosen = torch.linspace(0, count - 1, min(count, most)).long().unique()
        for some in chosen.split(self.size):
            yield self._cut(some * self.context)
