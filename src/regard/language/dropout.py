"""Counter-based dropout: every engine, tiling, thread and pass drops the same weights.

The random number of a pair is a pure function of (seed, batch, head, query, key), so nothing is stored between the
forward and the backward pass:

    words = philox(counter = (key // 4, query, head, batch), key = seed)   (four words of 32 bits, one per key)
    weight = p / (1 - rate) where words[key % 4] >= floor(rate · 2³²), else 0

`query` and `key` are positions, so chunked prefill and decoding drop the same pairs as one prefill. `batch` and `head`
are counted from batch_start and head_start, so a call over some of the heads drops the same pairs as the whole. The
comparison is between integers, so rounding cannot change it.

Source: Salmon, Moraes, Dror and Shaw, "Parallel Random Numbers: As Easy as 1, 2, 3" (2011): Philox4x32 with ten rounds.

>>> Dropout(0.5, seed=5).factors(batch=0, head=0, query=0, key=np.arange(8)).tolist()
[2.0, 0.0, 2.0, 2.0, 0.0, 0.0, 2.0, 0.0]
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

ROUNDS = 10
MULTIPLIERS = 0xD2511F53, 0xCD9E8D57  # of the first and of the third word
STEPS = 0x9E3779B9, 0xBB67AE85  # the increments of the two halves of the key per round: the golden ratio, √3 - 1
WORD = 0xFFFFFFFF


def philox(counter, key: int) -> list[np.ndarray]:
    """Philox4x32-10: four words of 32 bits for a counter of four words (arrays that broadcast) and a key of 64 bits."""
    a, b, c, d = (np.asarray(word).astype(np.int64).astype(np.uint64) & WORD for word in counter)
    for number in range(ROUNDS):
        low, high = ((half + number * step) & WORD for half, step in zip((key & WORD, key >> 32), STEPS, strict=True))
        first, third = (word * np.uint64(by) for word, by in zip((a, c), MULTIPLIERS, strict=True))
        a, b, c, d = (third >> 32) ^ b ^ low, third & WORD, (first >> 32) ^ d ^ high, first & WORD
    return [word.astype(np.uint32) for word in np.broadcast_arrays(a, b, c, d)]


@dataclass(frozen=True)
class Dropout:
    """The rate at which weights are dropped, 0 < rate < 1, the seed (64 bits), and the numbers of the first batch entry
    and the first head.
    """

    rate: float
    seed: int
    batch_start: int = 0
    head_start: int = 0

    @property
    def threshold(self) -> int:
        """Pairs whose random number is at least this are not dropped."""
        return math.floor(self.rate * 2**32)

    @property
    def scale(self) -> float:
        """The factor of the remaining weights, which preserves their mean."""
        return 1 / (1 - self.rate)

    def factors(self, batch, head, query, key) -> np.ndarray:
        """The factors of the weights of these pairs, 0 or 1 / (1 - rate); the positions broadcast. batch, head: counted
        from 0 in the call.
        """
        key = np.asarray(key)
        words = philox((key // 4, query, head + self.head_start, batch + self.batch_start), self.seed)
        numbers = np.choose(key % 4, words)
        return np.where(numbers >= self.threshold, self.scale, 0.0)
