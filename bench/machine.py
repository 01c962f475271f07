"""Machine: a description of the machine that the figures were measured on."""

from __future__ import annotations

import os
import platform
from typing import Any

from regard.engines.hardware import processor
from regard.engines.jit import description

__all__ = ["cores", "describe"]


def cores() -> int:
    """The number of cores that this process may use; every engine uses as many threads."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def describe() -> dict[str, Any]:
    """The processor, its cores, the target of kernels, system, Python version and load average; nothing that identifies
    the machine or its owner.
    """
    return {
        "cpu": processor(),
        "architecture": platform.machine(),
        "cores": cores(),
        "target": description(),
        "system": platform.system(),
        "python": platform.python_version(),
        "load": round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else -1.0,
    }
