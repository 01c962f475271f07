"""Threads: which ones a call uses; `common.thread_count` says how many.

If torch has OpenMP threads, they are used: they are polling for work already, and additional threads would compete with
them for the same cores. Otherwise workers are started on first use and wait in machine code (pool.py). They are daemon
threads that never return to Python: they own no lock, and end with the process. A forked child has neither, and starts
new workers.
"""

from __future__ import annotations

import ctypes
import functools
import os
import threading
from pathlib import Path

import numpy as np

from ...common.arrays import address
from ...common.caching import lock
from ...common.call_hooks import torch_if_imported
from ...common.thread_count import count, limit
from . import pool
from .code import build
from .code.target import host
from .pool import BELL, LINE, waiting_here

__all__ = ["Crew", "Team", "count", "crew", "limit", "team_size"]


def _machine_code(sleep: str) -> build.Kernel:
    return build.compiled(f"pool {sleep}", host(), lambda: pool.write(sleep), "share")


class Team:
    """The OpenMP threads of torch: `share(job, first, bell)` runs a slice of a job on them."""

    def __init__(self, parallel: int, threads: int) -> None:
        self.share = build.Kernel(_machine_code(waiting_here()).engine, "team").call
        # All of them are always used, because OpenMP terminates unused ones.
        self.first, self.bell = parallel, threads


class Crew:
    """Worker threads of regard: `share(job, first, bell)` runs a slice of a job with them."""

    def __init__(self, sleep: str) -> None:
        code = _machine_code(sleep)
        self.share, self.work = code.call, build.Kernel(code.engine, "work")
        self.memory = [aligned(BELL)]
        self.bell = address(self.memory[0])
        self.first = 0  # the mailbox of the newest worker, the head of the linked list
        self.size = 0
        if sleep == "condition":
            library = ctypes.CDLL(None)
            library.pthread_mutex_init(ctypes.c_void_p(self.bell), None)
            library.pthread_cond_init(ctypes.c_void_p(self.bell + BELL // 2), None)

    def grow(self, workers: int) -> None:
        """Starts threads until there are `workers` of them."""
        while self.size < workers:
            self.memory.append(aligned(pool.MAILBOX))
            mailbox = address(self.memory[-1])
            ctypes.c_int64.from_address(mailbox + pool.NEXT).value = self.first
            # The frame of the thread keeps the code and the memory alive until the process ends.
            threading.Thread(target=_work, args=(self, mailbox), daemon=True, name=f"regard-{self.size}").start()
            self.first = mailbox
            self.size += 1


def _work(crew: Crew, mailbox: int) -> None:
    crew.work.call(mailbox, 0, crew.bell)


def aligned(size: int) -> np.ndarray:
    """Zero bytes that begin on a cache line; untouched pages are not allocated."""
    room = np.zeros(size + LINE, np.uint8)
    return room[-address(room) % LINE :][:size]


_crew: Crew | None = None
_forked = False  # a forked child has no OpenMP threads, and OpenMP does not detect that
_growing = lock()


def crew(wanted: int, *, own: bool = False) -> Crew | Team:
    """The threads of this process: at least `wanted` besides the calling one. own: not those of torch, of which a
    thread that is not the main one would start others.
    """
    global _crew
    if wanted and not own and (team := _of_torch()) is not None and team.bell > wanted:
        return team
    if _crew is None or _crew.size < wanted:
        with _growing:
            if _crew is None:
                _crew = Crew(waiting_here())
            if _crew.size < wanted:
                _crew.grow(wanted)
    return _crew


def team_size() -> int:
    """The number of torch's threads, which poll for work; 0 if it has none."""
    team = _of_torch()
    return 0 if team is None else team.bell


def _of_torch() -> Team | None:
    torch = torch_if_imported()
    if torch is None or _forked:
        return None
    threads = torch.get_num_threads()
    return _team(torch.__file__, threads) if threads > 1 else None


@functools.cache
def _team(torch: str, threads: int) -> Team | None:
    """The threads of torch, if they are OpenMP's; torch's library resolves `GOMP_parallel` of the linked runtime."""
    path = Path(torch).parent / "lib" / "libtorch_cpu.so"
    parallel = getattr(ctypes.CDLL(str(path)), "GOMP_parallel", None) if path.exists() else None
    return Team(ctypes.cast(parallel, ctypes.c_void_p).value or 0, threads) if parallel else None


def _forget() -> None:
    global _crew, _forked
    _crew, _forked = None, True


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
