"""Keys, values and rows as pages of 128 tokens: which tokens a rank has of them, and pages as bytes.

A rank computes over arrays of the length of the whole sequence, in which the pages that it needs are at their
positions. The others are never touched: the system gives them no memory, and where a kernel reads beside a page that
it needs, it reads zeros.
"""

from __future__ import annotations

import numpy as np

from ..exchange.transport import room
from ..work import PAGE


def sparse(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Zeros that take no memory until they are written to."""
    return room(int(np.prod(shape)) * dtype.itemsize).view(dtype).reshape(shape)


class Rows:
    """The tokens of some pages, ascending, as a rank stores them: one after another.

    numbers: the pages. tokens: in the whole sequence, whose last page may be shorter.
    """

    def __init__(self, numbers: np.ndarray, tokens: int):
        self.numbers = numbers
        ends = np.minimum((numbers + 1) * PAGE, tokens)
        self.heights = ends - numbers * PAGE
        self.starts = np.append(0, np.cumsum(self.heights))

    def __len__(self) -> int:
        return int(self.starts[-1])

    def count(self, numbers: np.ndarray) -> int:
        """How many tokens some of the pages have."""
        return int(self.heights[np.searchsorted(self.numbers, numbers)].sum())

    def runs(self, numbers: np.ndarray) -> list[tuple[slice, slice]]:
        """Where the tokens of some of the pages are: (here, in the sequence) of each run of consecutive pages."""
        found = []
        if numbers.size:
            for run in np.split(numbers, np.flatnonzero(np.diff(numbers) > 1) + 1):
                first, last = np.searchsorted(self.numbers, run[[0, -1]])
                here = slice(int(self.starts[first]), int(self.starts[last + 1]))
                position = int(run[0]) * PAGE
                found.append((here, slice(position, position + here.stop - here.start)))
        return found

    def taken(self, array: np.ndarray, numbers: np.ndarray) -> np.ndarray:
        """The tokens of some of the pages out of an array (…, tokens here, d), one after another."""
        runs = [here for here, _ in self.runs(numbers)]
        if len(runs) == 1:
            return array[..., runs[0], :]
        return np.concatenate([array[..., each, :] for each in runs] or [array[..., :0, :]], axis=-2)

    def take(self, array: np.ndarray, numbers: np.ndarray, into: np.ndarray) -> None:
        """Writes the tokens of some of the pages of an array (…, tokens here, d) into another, one after another."""
        begin = 0
        for here, _ in self.runs(numbers):
            count = here.stop - here.start
            into[..., begin : begin + count, :] = array[..., here, :]
            begin += count

    def put(self, array: np.ndarray, numbers: np.ndarray, found: np.ndarray) -> None:
        """Writes the tokens of some of the pages, one after another, into an array (…, tokens here, d)."""
        begin = 0
        for here, _ in self.runs(numbers):
            count = here.stop - here.start
            array[..., here, :] = found[..., begin : begin + count, :]
            begin += count
