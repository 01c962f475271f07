"""Transport: what regard needs of a way to send bytes between ranks. Every rank calls the same methods in one order."""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol

import numpy as np

Arrays = Sequence[np.ndarray]


class Transport(Protocol):
    """A way to send bytes between ranks, numbered from 0."""

    rank: int
    ranks: int

    def swap(
        self, step: str, outgoing: np.ndarray, going: Sequence[int], coming: Sequence[int]
    ) -> Callable[[], list[np.ndarray]]:
        """Begins to send each rank its bytes; returns a function that waits and returns the bytes from each rank.

        step: what is exchanged, in words, for errors. outgoing: the bytes for each rank, one after another. going,
        coming: how many bytes go to each rank, and come from it.
        """


class Alone:
    """A `Transport` without other ranks."""

    rank, ranks = 0, 1

    def swap(
        self, step: str, outgoing: np.ndarray, going: Sequence[int], coming: Sequence[int]
    ) -> Callable[[], list[np.ndarray]]:
        """`Transport.swap`."""
        return lambda: [outgoing]


def swap_arrays(
    transport: Transport, step: str, outgoing: Sequence[Arrays], like: Sequence[Arrays]
) -> Callable[[], list[Arrays]]:
    """Begins to send each rank some arrays; returns a function that waits and returns the arrays from each rank.

    outgoing: for each rank, also views, which are copied once. What is for this rank is returned as it is. like: for
    each rank, arrays of the shapes and dtypes of those that it sends to this one.
    """
    going, coming = (
        [0 if other == transport.rank else sum(each.nbytes for each in arrays) for other, arrays in enumerate(side)]
        for side in (outgoing, like)
    )
    sent = room(sum(going))
    for other, part in enumerate(np.split(sent, np.cumsum(going)[:-1])):
        if other != transport.rank:
            write(views(part, outgoing[other]), outgoing[other])
    wait, own = transport.swap(step, sent, going, coming), outgoing[transport.rank]

    def received() -> list[Arrays]:
        parts = enumerate(zip(wait(), like, strict=True))
        return [own if other == transport.rank else [*views(part, arrays)] for other, (part, arrays) in parts]

    return received


def gather(transport: Transport, step: str, message: bytes) -> list[bytes]:
    """The message of each rank; all have the same length."""
    arrays = [[np.frombuffer(message, np.uint8)]] * transport.ranks
    return [each.tobytes() for (each,) in swap_arrays(transport, step, arrays, arrays)()]


def views(content: np.ndarray, like: Arrays) -> Iterator[np.ndarray]:
    """Bytes as arrays of the shapes and dtypes of others, one after another."""
    begin = 0
    for each in like:
        yield content[begin : begin + each.nbytes].view(each.dtype).reshape(each.shape)
        begin += each.nbytes


def write(into: Iterable[np.ndarray], arrays: Iterable[np.ndarray]) -> None:
    """Copies the numbers of arrays into others of the same shapes."""
    for target, source in zip(into, arrays, strict=True):
        target[...] = source


def room(size: int) -> np.ndarray:
    """Bytes in memory of their own, which take none until they are written to, and are returned to the system when they
    are freed: malloc keeps freed megabytes, and NumPy takes memory in pieces of 2 MB.
    """
    return np.frombuffer(mmap.mmap(-1, max(size, 1)), np.uint8)[:size]


def sparse(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Zeros that take no memory until they are written to."""
    return room(int(np.prod(shape)) * dtype.itemsize).view(dtype).reshape(shape)


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
