"""Shares: which rank holds which positions of a sequence that grows, so that shares are equal and partials are few.

Positions are dealt in rounds of blocks of 1024, in each round the same number of consecutive ones to every rank. The
first round is as long as the caller expects a sequence to be; the second has the same length, and every further one is
as long as all before it. So any length is possible, and a rank with half a round more than another is the worst case.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ...api.kv_cache.pages import PAGE
from ...api.kv_cache.state import Appended
from ..context.routes import Segment, segments

BLOCK = 1024  # positions: a piece of the kernel, of which the tree of law 11 is made


class Shares(NamedTuple):
    """The rule for a number of ranks. blocks: what each rank holds of the first round."""

    ranks: int
    blocks: int

    @classmethod
    def of(cls, ranks: int, tokens: int | None) -> Shares:
        """For sequences of about this many positions; None is unknown, and the first round has a block for each rank.

        >>> Shares.of(2, 4096).spans(0, 16), Shares.of(2, None).spans(0, 16)
        ([(0, 2), (4, 6), (8, 12)], [(0, 1), (2, 3), (4, 6), (8, 12)])
        """
        return cls(ranks, max(1, -(-(tokens or 0) // (BLOCK * ranks))))

    def spans(self, rank: int, last: int) -> list[tuple[int, int]]:
        """(first, last) block of each run of consecutive blocks of a rank among the first `last`, ascending."""
        found, begin, size = [], 0, self.blocks
        while begin < last:
            first = begin + rank * size
            if first < last:
                found.append((first, min(first + size, last)))
            begin += self.ranks * size
            size = begin // self.ranks
        return found

    def segments(self, rank: int, first: int, last: int) -> list[Segment]:
        """The subtrees that make up the blocks of a rank among the first `last`, without those that end by `first`."""
        found = [each for span in self.spans(rank, last) for each in segments(*span)]
        return [each for each in found if each.first + each.size > first]

    def positions(self, rank: int, first: int, last: int) -> np.ndarray:
        """The positions of a rank from `first` to `last`, without the last."""
        spans = self.spans(rank, -(-last // BLOCK))
        parts = [np.arange(max(begin * BLOCK, first), min(end * BLOCK, last)) for begin, end in spans]
        return np.concatenate([np.empty(0, np.int64), *parts])

    def columns(self, rank: int, count: int) -> np.ndarray:
        """Which of the first columns of a block table a rank has pages for."""
        return self.positions(rank, 0, count * PAGE)[::PAGE] // PAGE

    def counts(self, rank: int, lengths: np.ndarray) -> np.ndarray:
        """(B,) how many positions of sequences of these lengths a rank holds."""
        found = np.zeros_like(lengths)
        for first, last in self.spans(rank, -(-int(lengths.max(initial=0)) // BLOCK)):
            found += np.clip(lengths - first * BLOCK, 0, (last - first) * BLOCK)
        return found

    def of_append(self, rank: int, lengths: np.ndarray, new: Appended) -> Appended:
        """The rows of an append to sequences of these lengths that a rank stores."""
        starts = (lengths if new.sequences is None else lengths[new.sequences]).tolist()
        taken = [new.k.shape[2]] * len(starts) if new.rows is None else new.rows.tolist()
        places = [self.positions(rank, start, start + rows) - start for start, rows in zip(starts, taken, strict=True)]
        counts = np.array([len(each) for each in places], np.int64)
        most = int(counts.max(initial=0))
        index = np.zeros((len(places), most), np.int64)
        for line, each in zip(index, places, strict=True):
            line[: len(each)] = each
        if len(index) and (index == index[:1]).all():
            k, v = (each[:, :, index[0]] for each in new[:2])
        else:
            k, v = (np.take_along_axis(each, index[:, None, :, None], 2) for each in new[:2])
        return Appended(k, v, None if (counts == most).all() else counts, new.sequences)
