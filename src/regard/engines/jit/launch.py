"""Launch: runs a kernel over its tasks on several threads, with working memory, and keeps its arrays alive.

`launch` is for one call. A `Frame` is for calls of one kind: its argument block and its memory are used again.
"""

from __future__ import annotations

import ctypes
import functools
import threading
from struct import Struct

import numpy as np

from ...common.arrays import address
from . import pool, threads
from .code.build import Kernel
from .pool import LINE

JOB = Struct("6q")  # the beginning of a job (pool.py): kernel, arguments, scratch, stride, helpers, left
HELPERS, LEFT = pool.HELPERS // 8, pool.LEFT // 8
ENTERED, PENDING = pool.ENTERED // 8, pool.PENDING // 8
PAST = pool.PAST
SLOW = 1 << 30  # multiply-adds of a task, about 50 ms: beyond them, signals would have to wait


class Arena:
    """The memory of one call besides arrays: its job, and the working memory of its threads."""

    def __init__(self, size: int):
        self.size = size
        self.memory = np.zeros(size + LINE, np.uint8)
        start = -self.memory.ctypes.data % LINE
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


class _Apart:
    """A caller of its own for slow tasks: the main thread waits for it, and handles signals meanwhile."""

    def __init__(self, arena: Arena, crew: threads.Crew | threads.Team):
        self.arena, self.crew = arena, crew
        self.turn, self.over, self.running = threading.Lock(), False, threading.Lock()

    def wait(self) -> None:
        """Starts it, and waits until all tasks are done.

        It waits for a lock: an interrupt inside of `Event.wait` can end as RuntimeError("release unlocked lock").
        """
        self.running.acquire()
        threading.Thread(target=self._run, daemon=True, name="regard-caller").start()
        while not self.running.acquire(timeout=0.05):  # with a limit, because a wait may hide signals
            pass

    def _run(self) -> None:
        with self.turn:
            if not self.over:  # otherwise the call has ended before this thread began
                _share(self.arena, self.crew)
        self.running.release()

    def end(self) -> None:
        """Waits for it, or takes its place where it has not begun."""
        with self.turn:
            self.over = True
            _share(self.arena, self.crew)


def is_slow(work: float, tasks: int) -> bool:
    """Whether the tasks of a call with so many multiply-adds take so long that signals would have to wait."""
    return work > SLOW * max(tasks, 1)


def launch(
    kernel: Kernel, block: np.ndarray, scratch_bytes: int, workers: int, kept: tuple, *, slow: bool = False
) -> None:
    """Runs the kernel with an argument block until all its tasks are done. slow: see `is_slow`.

    The first two slots of every block are the address of a counter (int64, initially 0) and the number of tasks. The
    block contains addresses; the memory is kept alive by `kept` until no worker can access it, even if the call is
    interrupted.
    """
    arena = _arena(pool.JOB + workers * _stride(scratch_bytes))
    arena.fill(kernel, block, scratch_bytes, workers)
    _run(arena, workers, (kernel, block, kept), slow=slow)
    _free.append(arena)


def _run(arena: Arena, workers: int, kept: tuple, *, slow: bool) -> None:
    """Runs the job of an arena. kept: the kernel, the argument block, and other objects to keep alive."""
    slow = slow and threading.current_thread() is threading.main_thread()
    crew = threads.crew(workers - 1, own=slow)
    apart = _Apart(arena, crew) if slow else None
    arena.kept = kept
    try:
        _busy.add(arena)
        if apart is None:
            _share(arena, crew)
        else:
            apart.wait()
    except BaseException:  # an interrupt, or another exception raised by a signal handler
        while True:
            try:
                _stop(arena, crew, apart)
                break
            except BaseException:  # another interrupt during this loop has no effect
                continue
        raise
    finally:
        if not arena.job[LEFT]:
            arena.kept = ()
            _busy.discard(arena)


class Frame:
    """What one call at a time has to itself: an argument block, and working memory.

    kept: owners of the addresses in the block. alone: the kernel takes microseconds, and runs in the calling thread,
    with Python's lock. slow: see `is_slow`.
    """

    __slots__ = ("address", "alone", "arena", "block", "fresh", "kept", "slow", "workers")

    def __init__(
        self, kernel: Kernel, block: np.ndarray, scratch: int, workers: int, kept: tuple, *, alone, slow=False
    ):
        self.address, self.block, self.fresh = address(block), block.data, block.copy().data
        self.kept, self.workers, self.slow = (kernel, block, kept), workers, slow
        self.arena = Arena.of(scratch, workers)
        self.arena.fill(kernel, block, scratch, workers)
        start = self.arena.address
        pointers = ctypes.c_void_p(self.address), ctypes.c_void_p(start + pool.JOB), ctypes.c_int64(pool.ENDLESS)
        self.alone = functools.partial(kernel.brief, *pointers) if alone else None

    def begin(self) -> memoryview:
        """The argument block as it is before a call."""
        self.block[:] = self.fresh
        return self.block

    def run(self, kept: tuple = ()) -> None:
        """Runs the kernel until all tasks are done. kept: what else to keep alive meanwhile."""
        if self.alone is not None:
            self.alone()
            return
        job = self.arena.job
        job[HELPERS], job[LEFT], job[ENTERED], job[PENDING] = self.workers - 1, 1, 0, 0
        _run(self.arena, self.workers, (*self.kept, kept), slow=self.slow)


def _share(arena: Arena, crew: threads.Crew | threads.Team) -> None:
    """Runs the tasks of a job until none is left."""
    while arena.job[LEFT]:
        crew.share(arena.address, crew.first, crew.bell)


def _stop(arena: Arena, crew: threads.Crew | threads.Team, apart: _Apart | None) -> None:
    """Ends a call early: no thread starts a further task, slow tasks end early, and all are awaited, because they write
    to the caller's arrays.
    """
    if arena.job[LEFT]:
        ctypes.c_int64.from_address(int(arena.kept[1][0])).value = PAST
    if apart is None:
        _share(arena, crew)
    else:
        apart.end()


def _stride(scratch_bytes: int) -> int:
    """The bytes from one thread's working memory to the next."""
    return -(-scratch_bytes // LINE) * LINE


def _arena(size: int) -> Arena:
    try:
        arena = _free.pop()
    except IndexError:
        arena = Arena(size)
    if arena.size < size:
        arena = Arena(size)
    return arena
