"""Locks that a forked child finds free: a fork waits until nobody holds one."""

from __future__ import annotations

import os
import threading

__all__ = ["lock"]


def lock() -> threading.RLock:
    """A re-entrant lock, because handlers of signals and the garbage collector may run anybody's code while it is held.

    A fork takes all of them, the newest first. Rooms import downwards, so the newest belongs to the highest floor: it
    takes them in the order in which calls do. In the child nobody else is there to hold one.
    """
    made = threading.RLock()
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=made.acquire, after_in_parent=made.release, after_in_child=made.release)
    return made
