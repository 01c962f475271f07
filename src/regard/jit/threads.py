"""The pool: workers that run one native function side by side until its tasks are used up.

Tasks are handed out by a counter in memory that the kernel itself advances, so Python only starts the workers. The calling
thread works too; with one worker no other thread is touched.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue

__all__ = ["count", "limit", "run"]


class _Call:
    """The jobs of one call that other threads do, and what became of them."""

    def __init__(self) -> None:
        self.outcomes: list[BaseException | None] = []
        self.arrived: SimpleQueue = SimpleQueue()

    def do(self, job: Callable[[], None]) -> None:
        try:
            job()
        except BaseException as error:  # whatever it is, it belongs to the caller, who waits for an answer
            self.outcomes.append(error)
        else:
            self.outcomes.append(None)
        self.arrived.put(None)

    def wait(self, count: int) -> None:
        """Until so many outcomes are there; an interrupt waits too, because workers write into the caller's arrays."""
        interrupt: KeyboardInterrupt | None = None
        while len(self.outcomes) < count:
            try:
                self.arrived.get(timeout=0.1)  # an interrupt may swallow the news of an arrival, so look again
            except Empty:
                continue
            except KeyboardInterrupt as error:
                interrupt = error
        for outcome in (interrupt, *self.outcomes):
            if outcome is not None:
                raise outcome


class _Pool:
    """Daemon threads that wait for a job each, on queues that are quick because they are written in C."""

    def __init__(self, workers: int):
        self.process = os.getpid()
        self.inboxes: list[SimpleQueue] = [SimpleQueue() for _ in range(workers)]
        for number, inbox in enumerate(self.inboxes):
            threading.Thread(target=self._work, args=(inbox,), daemon=True, name=f"regard-{number}").start()

    def _work(self, inbox: SimpleQueue) -> None:
        while True:
            call, job = inbox.get()
            call.do(job)

    def run(self, jobs: list[Callable[[], None]]) -> None:
        call, sent = _Call(), 0
        try:
            for inbox, job in zip(self.inboxes, jobs[1:]):
                inbox.put((call, job))
                sent += 1
            jobs[0]()
        finally:
            call.wait(sent)


_pool: _Pool | None = None
_making = threading.Lock()
_limit = threading.local()


def count() -> int:
    """How many threads a call may use: the cores this process may run on, unless limited."""
    allowed = getattr(_limit, "threads", None)
    if allowed is not None:
        return allowed
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


def run(jobs: list[Callable[[], None]]) -> None:
    """Runs the jobs side by side, the first on the calling thread, and returns when all are done."""
    global _pool
    if len(jobs) == 1:
        jobs[0]()
        return
    with _making:
        # After a fork the child has no worker threads; it makes its own.
        if _pool is None or _pool.process != os.getpid() or len(_pool.inboxes) < len(jobs) - 1:
            _pool = _Pool(len(jobs) - 1)
        pool = _pool
    pool.run(jobs)
