"""C functions that machine code may call, and where the system has them: POSIX in the process itself, Windows in DLLs.

The part for Windows is written from its documentation. The waiting functions ran under Wine, never on Windows.
"""

from __future__ import annotations

import ctypes
import functools
import platform
import sys

from . import special

__all__ = ["C", "POSIX", "WINDOWS", "functions", "unavailable"]

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
WINDOWS = {
    "kernel32": ("QueryPerformanceCounter", "QueryPerformanceFrequency", "SwitchToThread"),
    "kernelbase": ("WaitOnAddress", "WakeByAddressSingle"),  # Windows 8 and newer
    "ucrtbase": C,
}

_floats = ctypes.c_int32(0x9875)


@functools.cache
def functions() -> dict[str, int]:
    """The addresses of these functions by name; a function that this system does not have is left out.

    Raises:
        TypeError, OSError: a system without a library of the process itself, and without those of Windows.
    """
    if sys.platform == "win32":
        found = {name: _address(ctypes.CDLL(library), name) for library, names in WINDOWS.items() for name in names}
        # Every object file of Microsoft's format that computes with floats refers to this variable.
        return {name: address for name, address in found.items() if address} | {"_fltused": ctypes.addressof(_floats)}
    found = {name: _address(ctypes.CDLL(None), name) for name in (*POSIX, *C)}
    return {name: address for name, address in found.items() if address}


def _address(library: ctypes.CDLL, name: str) -> int:
    return ctypes.cast(getattr(library, name), ctypes.c_void_p).value or 0 if hasattr(library, name) else 0


@functools.cache
def unavailable() -> str:
    """Why this system cannot run kernels; empty if it can."""
    system = platform.system() or "this system"
    try:
        known = functions()
    except (TypeError, OSError):
        return f"compiled kernels call functions of POSIX, which {system} does not have"
    if sys.platform == "win32":
        missing = [name for names in WINDOWS.values() for name in names if name not in known]
        return f"{system} does not have {', '.join(missing)}, which compiled kernels call" if missing else ""
    return ""
