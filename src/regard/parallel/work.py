"""Work: the sizes of a call, and what its plan visits in blocks of 128 rows and pages of 128 keys."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..common.dtypes import FLOATS
from ..engines.plan import plan
from ..language.problem import Problem

PAGE = 128  # tokens of a page, and rows of a block
LOW = 26  # bits of the lower part of a number that is summed


@dataclass(frozen=True)
class Sizes:
    """The sizes of one sequence whose attention is computed on several ranks.

    Args:
        tokens: rows, and keys.
        heads: query heads.
        key_heads: key/value heads, which divide `heads`.
        depth: numbers of a query and of a key, for each head.
        value_depth: numbers of a value, for each head.
        dtype: of all arrays: float32, float64, float16 or bfloat16.

    Examples:
        >>> import regard.parallel as rp
        >>> sizes = rp.Sizes(tokens=1000, heads=32, key_heads=8, depth=128, value_depth=128, dtype="bfloat16")
        >>> sizes.pages, sizes.key_bytes, sizes.row_bytes
        (8, 4096, 16384)
    """

    tokens: int
    heads: int
    key_heads: int
    depth: int
    value_depth: int
    dtype: str

    @property
    def pages(self) -> int:
        """Number of pages, and of blocks of rows."""
        return -(-self.tokens // PAGE)

    @property
    def heights(self) -> np.ndarray:
        """Tokens of each page (int64); the last page may have fewer than 128."""
        heights = np.full(self.pages, PAGE, np.int64)
        heights[-1] = self.tokens - (self.pages - 1) * PAGE
        return heights

    @property
    def key_bytes(self) -> int:
        """Bytes of the key and the value of one token, all key heads."""
        return self.key_heads * self.row_numbers * FLOATS[self.dtype].itemsize

    @property
    def row_bytes(self) -> int:
        """Bytes of the query and the output of one token, all heads."""
        return self.heads * self.row_numbers * FLOATS[self.dtype].itemsize

    @property
    def row_numbers(self) -> int:
        """Numbers of a key and a value, or of a query and an output, for one head."""
        return self.depth + self.value_depth

    @property
    def query_bytes(self) -> int:
        """Bytes of the query of one token, all heads."""
        return self.heads * self.depth * FLOATS[self.dtype].itemsize

    @property
    def result_bytes(self) -> int:
        """Bytes of the output and of lse of one token, all heads."""
        item = FLOATS[self.dtype]
        return self.heads * (self.value_depth * item.itemsize + FLOATS[item.sums].itemsize)


@dataclass(frozen=True, eq=False)
class Work:
    """What a call has to do.

    pairs: of each block of rows, the pairs of query and key in the tiles that are visited, over all heads (int64).
    block, first, last: of each run of keys, its block of rows, its first page, and one past its last.
    """

    sizes: Sizes
    pairs: np.ndarray
    block: np.ndarray
    first: np.ndarray
    last: np.ndarray

    @classmethod
    def of(cls, sizes: Sizes, mask: Any) -> tuple[Work, str]:
        """The work under a mask, and the mask as text. A page travels with all its key heads, so heads are merged."""
        nothing = np.zeros((), FLOATS["float32"].numpy)
        q = np.broadcast_to(nothing, (1, sizes.heads, sizes.tokens, 1))
        k = np.broadcast_to(nothing, (1, sizes.key_heads, sizes.tokens, 1))
        problem = Problem.of(q, k, k, where="place", mask=mask)
        return cls.seen(sizes, problem), "every pair" if problem.mask is None else str(problem.mask)

    @classmethod
    def seen(cls, sizes: Sizes, problem: Problem) -> Work:
        """The work of a checked problem whose rows and keys are all tokens; batch entries and heads are merged."""
        found = plan(problem, PAGE, PAGE)
        block = found.tile_of % sizes.pages
        first, last = found.runs[:, 0].astype(np.int64), found.runs[:, 1].astype(np.int64)
        area = (last - first) * found.heights * found.copies
        return cls(sizes, sums(block, area, sizes.pages), block, first // PAGE, -(-last // PAGE))


def positions_of(pages: np.ndarray, tokens: int) -> np.ndarray:
    """The positions of the tokens of some pages, in order (int64)."""
    found = (pages.astype(np.int64)[:, None] * PAGE + np.arange(PAGE)).ravel()
    return found[found < tokens]


def stripe_of(key_heads: int) -> int:
    """Key heads that travel at a time by default: a quarter of them."""
    return max(1, -(-key_heads // 4))


def sums(place: np.ndarray, numbers: np.ndarray, size: int) -> np.ndarray:
    """The sums of the numbers (int64) at each place, exactly: `bincount` adds floats, so two parts are summed.

    >>> sums(np.array([0, 1, 1]), np.array([5, (1 << 53) + 1, 1 << 53]), 2).tolist() == [5, (1 << 54) + 1]
    True
    """
    high, low = numbers >> LOW, numbers & ((1 << LOW) - 1)
    return (np.bincount(place, high, size).astype(np.int64) << LOW) + np.bincount(place, low, size).astype(np.int64)
