"""The memory of a process: its limit, and how far it grows."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

STATUS = Path("/proc/self/status")
CLEAR = Path("/proc/self/clear_refs")


def limit_memory(most: int | None = None) -> None:
    """Limits this process to the memory of the machine, or to `most` bytes if that is less, and makes it the first that
    the system ends if there is none left.

    On Linux the limit counts the memory that can be written, not reserved addresses, of which GPU drivers take far
    more than the machine has.
    """
    import resource

    kind = resource.RLIMIT_DATA if sys.platform == "linux" else resource.RLIMIT_AS
    try:
        physical = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        limit = physical if most is None else min(physical, most)
        _, hard = resource.getrlimit(kind)
        resource.setrlimit(kind, (limit if hard == resource.RLIM_INFINITY else min(limit, hard), hard))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # no file of its memory when it crashes
        Path("/proc/self/oom_score_adj").write_text("1000")
    except (OSError, ValueError):
        return  # a system that does not allow limits has none; the time limit remains


def restart_peak() -> int:
    """Starts a measurement: the bytes from which `peak` counts."""
    try:
        CLEAR.write_text("5")
    except OSError:
        return _largest()
    return _field("VmRSS")


def peak(start: int) -> int:
    """By how many bytes the memory grew at most since `restart_peak`; 0 if the system does not say."""
    now = _field("VmHWM") if CLEAR.exists() else _largest()
    return max(now - start, 0)


def _field(name: str) -> int:
    found = re.search(rf"^{name}:\s+(\d+) kB", STATUS.read_text(), re.M)
    return 1024 * int(found[1]) if found else 0


def _largest() -> int:
    """The largest size of this process so far, where it cannot be started again."""
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
