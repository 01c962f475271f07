"""Two checkouts of regard, case by case, in turns on one machine.

    python bench/compare_versions.py OLD NEW [PATTERN …]

Each checkout computes in a process of its own. They take turns in short bursts, so that noise of the machine affects
both; a ratio is the median time of OLD over that of NEW: above 1, NEW is faster. Kernels are compiled before anything
is timed.
"""

from __future__ import annotations

import fnmatch
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

BURSTS, SECONDS = 15, 0.15


def works() -> dict:
    """What is timed, by name: the cases of `regard bench`, and steps of a cache with little to compute."""
    import numpy as np

    import regard as rg
    from regard.bench.cases import CASES
    from regard.bench.engines import ENGINES

    def case(each):
        return lambda: ENGINES["regard"].forms(each.inputs())[0].run

    def steps(heads: int, keys: int):
        def prepare():
            q, k, v = np.random.default_rng(0).standard_normal((3, heads, keys, 64), dtype=np.float32)
            cache = rg.KVCache(heads=heads, depth=64)
            cache.append(k, v)
            cache.append(k[:, :1], v[:, :1])
            return lambda: cache.attend(q[:, :1])

        return prepare

    cached = {f"cache-{keys}": steps(8, keys) for keys in (64, 1024)}
    return {each.name: case(each) for each in CASES if "8k-d" not in each.name or each.task != "forward"} | cached


def serve() -> None:
    """A checkout's side: a name on a line prepares it, another line times one burst of it."""
    known, run = works(), None
    print(*known, flush=True)
    for line in sys.stdin:
        if line.strip() in known:
            run = known[line.strip()]()
            run()
            run()
            print("ready", flush=True)
            continue
        calls, start = 0, time.perf_counter()
        while time.perf_counter() - start < SECONDS or calls < 2:
            run()
            calls += 1
        print((time.perf_counter() - start) / calls, flush=True)


def side(checkout: str) -> subprocess.Popen:
    """The process of a checkout."""
    env = os.environ | {"PYTHONPATH": str(Path(checkout).resolve() / "src")}
    command = [sys.executable, __file__, "serve"]
    return subprocess.Popen(command, env=env, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def said(process: subprocess.Popen, line: str) -> str:
    """The answer to a line."""
    process.stdin.write(f"{line}\n")
    process.stdin.flush()
    return process.stdout.readline().strip()


def main(old: str, new: str, *patterns: str) -> None:
    sides = [side(old), side(new)]
    names = [each.stdout.readline().split() for each in sides]
    for name in names[0]:
        if name not in names[1] or not any(fnmatch.fnmatch(name, pattern) for pattern in patterns or ("*",)):
            continue
        for each in sides:
            assert said(each, name) == "ready", name
        spans = [[float(said(each, "time")) for each in sides] for _ in range(BURSTS)]
        before, after = (statistics.median(burst) for burst in zip(*spans, strict=True))
        print(f"{name:30} {before * 1e3:9.3f} ms {after * 1e3:9.3f} ms   {before / after:.3f}", flush=True)


if __name__ == "__main__":
    serve() if sys.argv[1:] == ["serve"] else main(*sys.argv[1:])
