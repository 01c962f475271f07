"""Transport: what regard needs of a way to send bytes between ranks. Every rank calls the same methods in one order."""

from __future__ import annotations

import itertools
import mmap
from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np

from ...common.arrays import address


class Transport(Protocol):
    """A way to send bytes between ranks, numbered from 0."""

    rank: int
    ranks: int

    def swap(
        self, step: str, outgoing: Sequence[np.ndarray], incoming: Sequence[int]
    ) -> Callable[[], list[np.ndarray]]:
        """Begins to send each rank its bytes; returns a function that waits and returns the bytes from each rank.

        step: what is exchanged, in words, for errors. outgoing: one array of uint8 for each rank, and for this one.
        incoming: the number of bytes that each rank sends to this one.
        """

    def gather(self, step: str, message: bytes) -> list[bytes]:
        """The message of each rank; all have the same length."""


def parts_of(sizes: Sequence[int]) -> list[np.ndarray]:
    """Room for the bytes of each rank: consecutive parts of one array, which `joined` then need not copy."""
    ends = np.cumsum([0, *sizes])
    whole = room(int(ends[-1]))
    return [whole[first:last] for first, last in itertools.pairwise(ends)]


def room(size: int) -> np.ndarray:
    """Bytes in memory of their own, which take none until they are written to, and are returned to the system when they
    are freed: malloc keeps freed megabytes, and NumPy takes memory in pieces of 2 MB.
    """
    return np.frombuffer(mmap.mmap(-1, max(size, 1)), np.uint8)[:size]


def joined(parts: Sequence[np.ndarray]) -> np.ndarray:
    """All bytes, one part after another; a view if they are consecutive parts of one array."""
    whole, filled = parts[0].base, [each for each in parts if each.size]
    if not isinstance(whole, np.ndarray) or whole.dtype != np.uint8 or whole.ndim != 1 or not filled:
        return np.concatenate(parts)
    ends = np.cumsum([address(filled[0]), *(each.size for each in filled)])
    consecutive = [address(each) for each in filled] == ends[:-1].tolist()
    if consecutive and all(each.base is whole for each in filled):
        return whole[ends[0] - address(whole) :][: ends[-1] - ends[0]]
    return np.concatenate(parts)


def as_bytes(array: np.ndarray) -> np.ndarray:
    """The bytes of an array in the order of its axes; a view if it is contiguous."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


class Lost(RuntimeError):
    """An exchange between ranks failed; the process group cannot be used afterwards.

    Args:
        message: which rank did not take part, in which exchange, and what it did last.

    Examples:
        >>> import regard.parallel as rp
        >>> raise rp.Lost("rank 2 ended")
        Traceback (most recent call last):
        regard.parallel.Lost: rank 2 ended
    """

    def __init__(self, message: str):
        super().__init__(message)
