"""Hardware: the name of the processor, its largest cache, and the memory that this process may use."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

CACHES = Path("/sys/devices/system/cpu")
LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))  # of a container
UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def processor() -> str:
    """The processor's name as the system has it, or "unknown"."""
    listing = Path("/proc/cpuinfo")
    if listing.exists():
        for line in listing.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or "unknown"


def memory_bytes() -> int | None:
    """Bytes of memory that this process may use: the machine's, or fewer in a container; None if unknown."""
    found = _physical()
    for path in LIMITS:
        text = path.read_text().strip() if path.is_file() else "max"
        if found is not None and text.isdigit():
            found = min(found, int(text))
    return found


def cache_bytes(caches: Path = CACHES) -> int | None:
    """Bytes of the last level of cache, over all its parts that the machine's cores have; None if unknown.

    caches: the folder in which Linux lists the processors.
    """
    parts = {}  # a part that several cores share is listed by each of them
    for folder in caches.glob("cpu[0-9]*/cache/index[0-9]*"):
        level, size = (folder / "level").read_text().strip(), (folder / "size").read_text().strip()
        cores, kind = (folder / "shared_cpu_list").read_text().strip(), (folder / "type").read_text().strip()
        if kind != "Instruction":
            parts[int(level), cores] = int(size.rstrip("KMG")) * UNITS.get(size[-1], 1)
    if parts:
        last = max(level for level, _ in parts)
        return sum(size for (level, _), size in parts.items() if level == last)
    return _cache_of_mac() if sys.platform == "darwin" else None


def _physical() -> int | None:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else None


def _cache_of_mac() -> int | None:
    for name in ("hw.l3cachesize", "hw.perflevel0.l2cachesize", "hw.l2cachesize"):
        process = subprocess.run(["/usr/sbin/sysctl", "-n", name], capture_output=True, text=True)
        if process.returncode == 0 and process.stdout.strip().isdigit() and int(process.stdout):
            return int(process.stdout)
    return None
