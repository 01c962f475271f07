"""Seconds of a call: the least of several tries."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

__all__ = ["seconds"]


def seconds(call: Callable[[], object], within: float = 0.05, least: int = 5) -> float:
    """The least seconds of a call, over at least some tries after the first, and as many as fit some time."""
    call()
    best, tries, end = math.inf, 0, time.perf_counter() + within
    while tries < least or time.perf_counter() < end:
        start = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - start)
        tries += 1
    return best
