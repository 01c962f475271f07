"""The content of a page: one row of numbers per head and position, in its dtype or in 8 bits.

The rows of one head are contiguous within a page, (pages, heads, PAGE, depth), so that a kernel reads them in order.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from .pages import PAGE


class Rows:
    """Rows in their own dtype: a row takes depth · itemsize bytes. scales: of integers, (pages, heads, PAGE)."""

    scales: np.ndarray | None = None

    def __init__(self, heads: int, depth: int, dtype: np.dtype):
        self.heads, self.depth, self.dtype = heads, depth, dtype
        self.array = np.zeros((0, heads, PAGE, depth), dtype)

    @property
    def arrays(self) -> tuple[np.ndarray, ...]:
        """All that is stored, each (pages, heads, PAGE, …)."""
        return (self.array,)

    def over(self, arrays: Sequence[np.ndarray]) -> Rows:
        """The same kind of rows in other arrays."""
        other = copy.copy(self)
        (other.array,) = arrays
        return other

    def write(self, pages: np.ndarray | int, places: np.ndarray | slice, rows: np.ndarray) -> None:
        """rows (…, heads, depth) at row `places` (…) of `pages` (…); or (heads, n, depth) at a slice of one page."""
        self.array[pages, :, places] = rows

    def read(self, pages: np.ndarray) -> np.ndarray:
        """The contents of pages (…) -> (…, heads, PAGE, depth)."""
        return self.array[pages]


class Rows8(Rows):
    """Rows in 8 bits: row ≈ scale · integers from −127 to 127, with a float32 scale = max |row| / 127 for each row.

    A row takes depth + 4 bytes. A row with a NaN or an infinity is read as NaN, because a scale cannot represent it.
    """

    scales: np.ndarray

    def __init__(self, heads: int, depth: int, dtype: np.dtype):
        super().__init__(heads, depth, np.dtype(np.int8))
        self.dtype = dtype
        self.scales = np.zeros((0, heads, PAGE), np.float32)

    @property
    def arrays(self) -> tuple[np.ndarray, ...]:
        return self.array, self.scales

    def over(self, arrays: Sequence[np.ndarray]) -> Rows8:
        other = copy.copy(self)
        other.array, other.scales = arrays
        return other

    def write(self, pages: np.ndarray | int, places: np.ndarray | slice, rows: np.ndarray) -> None:
        rows = rows.astype(np.float32)
        top = np.abs(rows).max(-1)
        scales = np.where(np.isfinite(top), top / 127, np.float32(np.nan))
        divisor = np.where(scales > 0, scales, 1)  # 1 for a row of zeros or NaN
        finite = np.where(np.isfinite(top)[..., None], rows, 0)
        super().write(pages, places, np.clip(np.rint(finite / divisor[..., None]), -127, 127).astype(np.int8))
        self.scales[pages, :, places] = scales

    def read(self, pages: np.ndarray) -> np.ndarray:
        return (self.array[pages] * self.scales[pages][..., None]).astype(self.dtype)


class Stores(NamedTuple):
    """The stored keys and the stored values of all pages."""

    k: Rows
    v: Rows

    @property
    def arrays(self) -> tuple[np.ndarray, ...]:
        return *self.k.arrays, *self.v.arrays

    @property
    def pools(self) -> tuple[np.ndarray, ...]:
        """What kernels read, with four axes each: keys, values and, if rows have scales, those of both."""
        return self.k.array, self.v.array, *(store.scales[..., None] for store in self if store.scales is not None)

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for array in self.arrays)

    def over(self, arrays: Sequence[np.ndarray]) -> Stores:
        """The same kind of stores in other arrays, in the order of `arrays`."""
        count = len(self.k.arrays)
        return type(self)(self.k.over(arrays[:count]), self.v.over(arrays[count:]))

    def grown(self, pages: int) -> Stores:
        """A copy with this number of pages; new pages are zero, and take memory only when they are written."""
        return self.over([_longer(array, pages) for array in self.arrays])

    def copy(self, source: np.ndarray, target: np.ndarray) -> None:
        for array in self.arrays:
            array[target] = array[source]

    def content(self, pages: np.ndarray) -> list[np.ndarray]:
        """A copy of everything in these pages."""
        return [array[pages] for array in self.arrays]

    def restore(self, pages: np.ndarray, content: list[np.ndarray]) -> None:
        """Sets these pages to an earlier content."""
        for array, earlier in zip(self.arrays, content):
            array[pages] = earlier


def _longer(array: np.ndarray, pages: int) -> np.ndarray:
    longer = np.zeros((pages, *array.shape[1:]), array.dtype)
    longer[: len(array)] = array
    return longer
