"""Counter-based dropout in torch operations: drops the same pairs as `regard.language.dropout`, on the device."""

from __future__ import annotations

import torch

from ...language.dropout import MULTIPLIERS, ROUNDS, STEPS, Dropout

WORD = 0xFFFFFFFF


def factors(dropout: Dropout, real: torch.dtype, batch, head, query, key) -> torch.Tensor:
    """The dropout factors of these pairs, 0 or 1 / (1 - rate); the positions broadcast, batch and head from 0.

    Words are stored as int64: the product of two wraps around and is bit-identical to the unsigned product.

    >>> zero = torch.zeros(1, dtype=torch.int64)
    >>> factors(Dropout(0.5, seed=5), torch.float32, zero, zero, zero, torch.arange(8)).tolist()
    [2.0, 0.0, 2.0, 2.0, 0.0, 0.0, 2.0, 0.0]
    """
    four = torch.div(key, 4, rounding_mode="floor")
    head, batch = head.to(torch.int64) + dropout.head_start, batch.to(torch.int64) + dropout.batch_start
    a, b, c, d = (word.to(torch.int64) & WORD for word in (four, query, head, batch))
    for number in range(ROUNDS):
        halves = zip((dropout.seed & WORD, dropout.seed >> 32), STEPS, strict=True)
        low, high = ((half + number * step) & WORD for half, step in halves)
        first, third = (word * by for word, by in zip((a, c), MULTIPLIERS, strict=True))
        a, b, c, d = ((third >> 32) & WORD) ^ b ^ low, third & WORD, ((first >> 32) & WORD) ^ d ^ high, first & WORD
    place = torch.remainder(key, 4)
    numbers = torch.where(place < 2, torch.where(place == 0, a, b), torch.where(place == 2, c, d))
    return (numbers >= dropout.threshold).to(real) * dropout.scale
