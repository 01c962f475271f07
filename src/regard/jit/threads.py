"""Threads: how many a call may use, and the workers of this process, who wait in machine code (pool.py) from the first need on.

Workers are daemon threads that never return to Python: they hold no lock, and end with the process. A forked child has none, and
starts its own.
"""

from __future__ import annotations

import ctypes
import os
import threading

import numpy as np

from ..locks import lock
from . import build, pool
from .target import host

__all__ = ["Crew", "count", "crew", "limit"]

_limit = threading.local()


def count() -> int:
    """How many threads a call may use: the cores this process may run on, unless limited."""
    allowed = getattr(_limit, "threads", None)
    return _cores() if allowed is None else allowed


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class limit:
    """`with limit(1):` calls made in this thread use at most that many threads."""

    def __init__(self, threads: int):
        if threads < 1:
            raise ValueError(f"at least one thread is needed, not {threads}")
        self.threads = threads

    def __enter__(self):
        self.before = getattr(_limit, "threads", None)
        _limit.threads = self.threads

    def __exit__(self, *exc):
        _limit.threads = self.before


class Crew:
    """Workers, and the function that shares a job with them."""

    def __init__(self, sleep: str) -> None:
        self.sleep = sleep
        code = build.compiled(f"pool {sleep}", host(), lambda: pool.write(sleep), "share")
        self.share, self.work = code.call, build.Kernel(code.engine, "work")
        self.memory = [_zeros(pool.BELL)]
        self.bell = _aligned(self.memory[0])
        self.first = 0  # the mailbox of the newest worker, from which the others are found
        self.size = 0
        if sleep == "condition":
            library = ctypes.CDLL(None)
            library.pthread_mutex_init(ctypes.c_void_p(self.bell), None)
            library.pthread_cond_init(ctypes.c_void_p(self.bell + pool.BELL // 2), None)

    def grow(self, workers: int) -> None:
        """Starts workers until there are so many."""
        while self.size < workers:
            memory = _zeros(pool.MAILBOX)
            mailbox = _aligned(memory)
            self.memory.append(memory)
            ctypes.c_int64.from_address(mailbox + pool.NEXT).value = self.first
            # The thread's own frame keeps the code and the memory, until the process ends.
            threading.Thread(target=_work, args=(self, mailbox), daemon=True, name=f"regard-{self.size}").start()
            self.first = mailbox
            self.size += 1


def _work(crew: Crew, mailbox: int) -> None:
    crew.work.call(mailbox, 0, crew.bell)


def _zeros(size: int) -> np.ndarray:
    return np.zeros(size + pool.LINE, np.uint8)


def _aligned(memory: np.ndarray) -> int:
    return -(-memory.ctypes.data // pool.LINE) * pool.LINE


_crew: Crew | None = None
_growing = lock()


def crew(wanted: int) -> Crew:
    """The workers of this process, so many at least."""
    global _crew
    if _crew is None or _crew.size < wanted:
        with _growing:
            if _crew is None:
                _crew = Crew(pool.sleep_here())
            if _crew.size < wanted:
                _crew.grow(wanted)
    return _crew


def _forget() -> None:
    global _crew
    _crew = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
