"""The one way to run a kernel over its tasks: on how many threads, with which working memory, and what must stay alive
meanwhile.
"""

from __future__ import annotations

import ctypes
from struct import Struct

import numpy as np

from ....common.arrays import address
from ..code.build import Kernel
from . import pool, threads

__all__ = ["launch"]

JOB = Struct("6q")  # the beginning of a job (pool.py): kernel, arguments, scratch, stride, helpers, left
LEFT, ENTERED, PENDING = (place // 8 for place in (pool.LEFT, pool.ENTERED, pool.PENDING))
PAST = 2**62  # a counter beyond every task


class Arena:
    """What one call needs beside arrays: its job, and the working memory of its threads."""

    def __init__(self, size: int):
        self.size = size
        self.memory = np.zeros(size + pool.LINE, np.uint8)
        start = -self.memory.ctypes.data % pool.LINE
        self.address = self.memory.ctypes.data + start
        self.job = self.memory.data[start : start + pool.JOB].cast("q")
        self.kept: tuple = ()


_free: list[Arena] = []  # the last used last, because it lies nearest
_busy: set[Arena] = set()  # a call that is torn away from its arena leaves it here: a worker may still be writing


def launch(kernel: Kernel, block: np.ndarray, scratch_bytes: int, workers: int, kept: tuple) -> None:
    """Runs the kernel with an argument block until its tasks are used up.

    The first two slots of every block are the address of a counter (int64, 0 at first) and the number of tasks. The
    block holds addresses; what they point to is `kept` until no worker can be at it, whatever interrupts the call.
    """
    stride = -(-scratch_bytes // pool.LINE) * pool.LINE
    arena = _arena(pool.JOB + workers * stride)
    crew = threads.crew(workers - 1)
    arena.kept = kernel, block, kept
    JOB.pack_into(arena.job, 0, kernel.address, address(block), arena.address + pool.JOB, stride, workers - 1, 1)
    arena.job[ENTERED] = arena.job[PENDING] = 0
    try:
        _busy.add(arena)
        while arena.job[LEFT]:
            crew.share(arena.address, crew.first, crew.bell)
    except BaseException:  # an interrupt, or whatever else a handler of signals raises
        while True:
            try:
                _stop(arena, crew)
                break
            except BaseException:  # the next interrupt, while the first is served: it changes nothing
                continue
        raise
    finally:
        if not arena.job[LEFT]:
            arena.kept = ()
            _busy.discard(arena)
            _free.append(arena)


def _stop(arena: Arena, crew: threads.Crew | threads.Team) -> None:
    """Ends a call early: nobody takes a further task, and all are waited for, because they write into the caller's
    arrays.
    """
    while arena.job[LEFT]:
        ctypes.c_int64.from_address(int(arena.kept[1][0])).value = PAST
        crew.share(arena.address, crew.first, crew.bell)


def _arena(size: int) -> Arena:
    try:
        arena = _free.pop()
    except IndexError:
        arena = Arena(size)
    if arena.size < size:
        arena = Arena(size)
    return arena
