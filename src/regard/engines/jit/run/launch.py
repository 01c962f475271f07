"""Launch: runs a kernel over its tasks on several threads, with working memory, and keeps its arrays alive."""

from __future__ import annotations

import ctypes
from struct import Struct

import numpy as np

from ....common.arrays import address
from ..code.build import Kernel
from . import pool, threads

__all__ = ["Arena", "launch"]

JOB = Struct("6q")  # the beginning of a job (pool.py): kernel, arguments, scratch, stride, helpers, left
LEFT, ENTERED, PENDING = (place // 8 for place in (pool.LEFT, pool.ENTERED, pool.PENDING))
PAST = 2**62  # a counter beyond every task


class Arena:
    """The memory of one call besides arrays: its job, and the working memory of its threads."""

    def __init__(self, size: int):
        self.size = size
        self.memory = np.zeros(size + pool.LINE, np.uint8)
        start = -self.memory.ctypes.data % pool.LINE
        self.address = self.memory.ctypes.data + start
        self.job = self.memory.data[start : start + pool.JOB].cast("q")
        self.kept: tuple = ()

    @classmethod
    def of(cls, scratch_bytes: int, workers: int) -> Arena:
        """An arena for this many threads."""
        return cls(pool.JOB + workers * _stride(scratch_bytes))

    def fill(self, kernel: Kernel, block: np.ndarray, scratch_bytes: int, workers: int) -> None:
        """Writes the job of a call."""
        stride = _stride(scratch_bytes)
        JOB.pack_into(self.job, 0, kernel.address, address(block), self.address + pool.JOB, stride, workers - 1, 1)
        self.job[ENTERED] = self.job[PENDING] = 0


_free: list[Arena] = []  # most recently used last, because it is likely to be in the cache
_busy: set[Arena] = set()  # the arena of an interrupted call stays here, because a worker may still write to it


def launch(kernel: Kernel, block: np.ndarray, scratch_bytes: int, workers: int, kept: tuple) -> None:
    """Runs the kernel with an argument block until all its tasks are done.

    The first two slots of every block are the address of a counter (int64, initially 0) and the number of tasks. The
    block contains addresses; the memory is kept alive by `kept` until no worker can access it, even if the call is
    interrupted.
    """
    arena = _arena(pool.JOB + workers * _stride(scratch_bytes))
    crew = threads.crew(workers - 1)
    arena.kept = kernel, block, kept
    arena.fill(kernel, block, scratch_bytes, workers)
    try:
        _busy.add(arena)
        while arena.job[LEFT]:
            crew.share(arena.address, crew.first, crew.bell)
    except BaseException:  # an interrupt, or another exception raised by a signal handler
        while True:
            try:
                _stop(arena, crew)
                break
            except BaseException:  # another interrupt during this loop has no effect
                continue
        raise
    finally:
        if not arena.job[LEFT]:
            arena.kept = ()
            _busy.discard(arena)
            _free.append(arena)


def _stop(arena: Arena, crew: threads.Crew | threads.Team) -> None:
    """Ends a call early: no thread starts a further task, and all are awaited, because they write to the caller's
    arrays.
    """
    while arena.job[LEFT]:
        ctypes.c_int64.from_address(int(arena.kept[1][0])).value = PAST
        crew.share(arena.address, crew.first, crew.bell)


def _stride(scratch_bytes: int) -> int:
    """The bytes from one thread's working memory to the next."""
    return -(-scratch_bytes // pool.LINE) * pool.LINE


def _arena(size: int) -> Arena:
    try:
        arena = _free.pop()
    except IndexError:
        arena = Arena(size)
    if arena.size < size:
        arena = Arena(size)
    return arena
