"""The one way to run a kernel over its tasks: on how many threads, with which working memory, and what must stay alive meanwhile."""

from __future__ import annotations

import threading

import numpy as np

from . import threads
from .build import Kernel

__all__ = ["ENDLESS", "launch"]

ENDLESS = 2**62  # a budget of tasks that is never used up

_memory = threading.local()


def launch(kernel: Kernel, block: np.ndarray, scratch_bytes: int, workers: int, kept: tuple) -> None:
    """Runs the kernel with an argument block until its tasks are used up.

    The first two slots of every block are the address of a counter (int64, 0 at first) and the number of tasks.
    The block holds addresses. A worker may outlive an interrupted call, so the job itself keeps what they point to (`kept`).
    """
    held = (block, kept)

    def job(held=held) -> None:
        kernel.call(held[0].ctypes.data, _scratch(scratch_bytes), ENDLESS)

    threads.run([job] * workers)


def _scratch(size: int) -> int:
    """The address of this thread's working memory, aligned to a cache line, kept from call to call."""
    held = getattr(_memory, "held", None)
    if held is None or held[0] < size:
        array = np.empty(size + 64, np.uint8)
        held = _memory.held = size, -(-array.ctypes.data // 64) * 64, array
    return held[1]
