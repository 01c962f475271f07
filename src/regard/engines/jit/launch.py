"""Launch: runs a kernel over its tasks on several threads, with working memory, and keeps its arrays alive."""

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
HELPERS, LEFT, ENTERED, PENDING = (place // 8 for place in (pool.HELPERS, pool.LEFT, pool.ENTERED, pool.PENDING))
PAST = pool.PAST
SLOW = 1 << 30  # multiply-adds of a task, about 50 ms: beyond them, signals would have to wait

# The workspace of an interrupted call stays here, because a worker may still write to it.
_busy: set[Workspace] = set()


class Workspace:
    """What one call at a time has to itself: an argument block, and working memory.

    block: whose first two slots are the address of a counter (int64, initially 0) and the number of tasks. kept: owners
    of the addresses in it; the last of them is memory of the call, `room`. scratch: bytes of each thread. alone: the
    kernel takes microseconds, and runs in the calling thread, with Python's lock. slow: see `is_slow`.
    """

    def __init__(
        self, kernel: Kernel, block: np.ndarray, scratch: int, workers: int, kept: tuple, *, alone=False, slow=False
    ):
        self.block, self.fresh = block.data, block.copy().data
        self.room, self.kept, self.workers, self.slow = kept[-1], (kernel, block, kept), workers, slow
        self.held: tuple = ()
        stride = -(-scratch // LINE) * LINE  # bytes from one thread's working memory to the next
        memory = threads.aligned(pool.JOB + workers * stride)
        self.address, self.job = address(memory), memory.data[: pool.JOB].cast("q")
        pointers = kernel.address, address(block), self.address + pool.JOB
        JOB.pack_into(self.job, 0, *pointers, stride, 0, 0)
        self.alone = functools.partial(kernel.brief, *pointers[1:], pool.ENDLESS) if alone else None

    @classmethod
    def of(cls, kind) -> Workspace:
        """One for a call of this kind: a free one, with its block as it was made, or a new one."""
        try:
            found = kind.free.pop()
        except IndexError:
            return kind.workspace()
        found.block[:] = found.fresh
        return found

    def run(self, held: tuple = ()) -> None:
        """Runs the kernel with the argument block until all its tasks are done.

        held: further objects to keep alive until no worker can access them, even if the call is interrupted.
        """
        if self.alone is not None:
            self.alone()
            return
        job = self.job
        job[HELPERS], job[LEFT], job[ENTERED], job[PENDING] = self.workers - 1, 1, 0, 0
        slow = self.slow and threading.current_thread() is threading.main_thread()
        crew = threads.crew(self.workers - 1, own=slow)
        apart = _Apart(self, crew) if slow else None
        self.held = held
        try:
            _busy.add(self)
            if apart is None:
                self.share(crew)
            else:
                apart.wait()
        except BaseException:  # an interrupt, or another exception raised by a signal handler
            while True:
                try:
                    self._stop(crew, apart)
                    break
                except BaseException:  # another interrupt during this loop has no effect
                    continue
            raise
        finally:
            if not job[LEFT]:
                self.held = ()
                _busy.discard(self)

    def share(self, crew: threads.Crew | threads.Team) -> None:
        """Runs the tasks of the job until none is left."""
        while self.job[LEFT]:
            crew.share(self.address, crew.first, crew.bell)

    def _stop(self, crew: threads.Crew | threads.Team, apart: _Apart | None) -> None:
        """Ends a call early: no thread starts a further task, slow tasks end early, and all are awaited, because they
        write to the caller's arrays.
        """
        if self.job[LEFT]:
            ctypes.c_int64.from_address(self.block[0]).value = PAST
        if apart is None:
            self.share(crew)
        else:
            apart.end()


class _Apart:
    """A caller of its own for slow tasks: the main thread waits for it, and handles signals meanwhile."""

    def __init__(self, workspace: Workspace, crew: threads.Crew | threads.Team):
        self.workspace, self.crew = workspace, crew
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
                self.workspace.share(self.crew)
        self.running.release()

    def end(self) -> None:
        """Waits for it, or takes its place where it has not begun."""
        with self.turn:
            self.over = True
            self.workspace.share(self.crew)


def is_slow(work: float, tasks: int) -> bool:
    """Whether the tasks of a call with so many multiply-adds take so long that signals would have to wait."""
    return work > SLOW * max(tasks, 1)
