"""C functions that machine code may call, which systems with POSIX have in the process itself."""

from __future__ import annotations

import ctypes
import functools
import platform

from . import special

C = ("memcmp", "memcpy", "memset", *special.LIBRARY, *(f"{name}f" for name in special.LIBRARY))
# For threads that wait (run/waiting.py), and that let others run (kernels/backward_parts/ordered_adds.py).
POSIX = (
    "clock_gettime",
    "pthread_cond_broadcast",
    "pthread_cond_timedwait",
    "pthread_cond_wait",
    "pthread_mutex_lock",
    "pthread_mutex_unlock",
    "sched_yield",
    "syscall",
)


@functools.cache
def functions() -> dict[str, int]:
    """The addresses of these functions by name; a function that this system does not have is left out.

    Raises:
        TypeError, OSError: a system without a library of the process itself.
    """
    found = {name: _address(ctypes.CDLL(None), name) for name in (*POSIX, *C)}
    return {name: address for name, address in found.items() if address}


def _address(library: ctypes.CDLL, name: str) -> int:
    return ctypes.cast(getattr(library, name), ctypes.c_void_p).value or 0 if hasattr(library, name) else 0


@functools.cache
def unavailable() -> str:
    """Why this system cannot run kernels; empty if it can."""
    system = platform.system() or "this system"
    try:
        functions()
    except (TypeError, OSError):
        return f"compiled kernels call functions of POSIX, which {system} does not have"
    return ""
