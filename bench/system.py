"""System: import time, compile time and memory of regard, each measured in fresh processes."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import regard
from regard.common.errors import refuse

from .fresh_process import RULES

__all__ = ["Figure", "measure"]

IMPORT = """
import json, sys, time
start = time.perf_counter()
import regard
loaded = [name for name in ("torch", "llvmlite") if name in sys.modules]
print(json.dumps({"seconds": time.perf_counter() - start, "loaded": loaded}))
"""
IMPORTS = 5  # fresh processes, of which the median is reported


@dataclass(frozen=True)
class Figure:
    """One measured value with its unit (s, bytes or ×), or NaN and a note with the reason."""

    name: str
    value: float
    unit: str
    note: str = ""


def measure(rules: list[str], progress: Callable[[str], None]) -> list[Figure]:
    """Import time, compile times of the named rules (see fresh_process.RULES), and extra memory."""
    progress("system: import time")
    figures = [import_time()]
    for rule in rules:
        progress(f"system: compiling {rule}")
        figures += compile_time(rule)
    progress("system: memory at 100,000 rows")
    return [*figures, memory()]


def import_time() -> Figure:
    """`import regard` in a fresh process, NumPy included."""
    found = [child(["-c", IMPORT]) for _ in range(IMPORTS)]
    loaded = ", ".join(found[0]["loaded"])
    note = f"loads {loaded}" if loaded else "loads neither torch nor llvmlite"
    return Figure("import regard", statistics.median(one["seconds"] for one in found), "s", note)


def compile_time(rule: str) -> list[Figure]:
    """First call of a kernel minus a later call: with an empty cache, then with the disk cache that this filled."""
    with tempfile.TemporaryDirectory() as folder:
        cold, cached = (child(["-m", "bench.fresh_process", "compile", rule], XDG_CACHE_HOME=folder) for _ in range(2))
    return [
        Figure(f"compile {rule}, cold", cold["first"] - cold["again"], "s"),
        Figure(f"compile {rule}, from disk", cached["first"] - cached["again"], "s"),
        Figure(
            f"first call of a process, {rule} cached", cached["very_first"], "s", "another kernel; loads the compiler"
        ),
    ][: 3 if rule == next(iter(RULES)) else 2]


def memory() -> Figure:
    """Peak memory of a causal call on 100,000 rows and one head, without inputs and output."""
    name = "extra memory, causal, 100,000 rows × 1 head"
    if not Path("/proc/self/clear_refs").exists():
        return Figure(name, float("nan"), "bytes", "measured on Linux only: it needs /proc/self/clear_refs")
    return Figure(name, child(["-m", "bench.fresh_process", "memory"])["extra"], "bytes")


def child(arguments: list[str], **environment: str) -> Any:
    """The JSON that a fresh interpreter prints; it imports the same regard and bench as this one."""
    places = [str(Path(regard.__file__).parents[1]), str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH")]
    path = os.pathsep.join(filter(None, places))
    done = subprocess.run(
        [sys.executable, *arguments],
        env={**os.environ, "PYTHONPATH": path, **environment},
        capture_output=True,
        text=True,
    )
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise refuse(
            "bench",
            "a fresh process failed",
            last,
            "a measurement as JSON",
            f"run it manually: python {' '.join(arguments)}",
        )
    return json.loads(done.stdout)
