"""Measurements that need a fresh process: `python -m bench.fresh_process compile causal` prints JSON.

compile RULE   the first call of a kernel and the next one, after another kernel has loaded the compiler
memory         peak memory of a call on 100,000 rows and one head, without its inputs and output
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import numpy as np

from regard.api.attention import attention
from regard.language import masks, scores

__all__ = ["RULES", "compile_times", "extra_memory"]

RULES = {
    "dense": {},
    "causal": {"mask": masks.causal()},
    "window": {"mask": masks.window(256)},
    "documents": {"mask": masks.documents(lengths=[40, 60, 28]) & masks.causal()},
    "softcap": {"mask": masks.causal(), "score": scores.softcap(30.0)},
    "alibi": {"mask": masks.causal(), "score": scores.alibi(2)},
}
ROWS = 100_000


def compile_times(rule: str) -> dict[str, float]:
    """Seconds of the first call of the process, and of a kernel's first and next call once the compiler is loaded."""
    q, k, v = np.random.default_rng(0).standard_normal((3, 2, 128, 64), dtype=np.float32)
    small = q[..., :24].copy(), k[..., :24].copy(), v[..., :24].copy()
    very_first = timed(lambda: attention(*small, engine="jit"))
    first = timed(lambda: attention(q, k, v, engine="jit", **RULES[rule]))
    again = min(timed(lambda: attention(q, k, v, engine="jit", **RULES[rule])) for _ in range(5))
    return {"very_first": very_first, "first": first, "again": again}


def extra_memory() -> dict[str, int]:
    """Peak resident bytes of a causal call, minus the resident bytes before it and minus the output."""
    q, k, v = np.random.default_rng(0).standard_normal((3, 1, ROWS, 64), dtype=np.float32)
    mask = masks.causal()
    attention(q[:, :2048], k[:, :2048], v[:, :2048], mask=mask, engine="jit")  # compiles, and starts the threads
    Path("/proc/self/clear_refs").write_text("5")  # reset the peak
    before = status("VmRSS")
    out = attention(q, k, v, mask=mask, engine="jit")
    return {"rows": ROWS, "extra": status("VmHWM") - before - out.nbytes}


def status(field: str) -> int:
    """A size from /proc/self/status, in bytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024
    raise KeyError(field)


def timed(run) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


if __name__ == "__main__":
    print(json.dumps(compile_times(sys.argv[2]) if sys.argv[1] == "compile" else extra_memory()))
