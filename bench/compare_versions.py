"""Compares two checkouts of regard, case by case, in interleaved runs on one machine.

    python bench/compare_versions.py OLD NEW [PATTERN …]

Each checkout runs in a separate process. Short bursts alternate, and so does the process that goes first, so that
machine noise affects both equally. The processes are started several times, because the addresses of arrays differ
between processes, which changes short calls by a few percent. A ratio is the median time of OLD divided by that of NEW:
above 1, NEW is faster. The median of the starts is printed with their range; `OLD OLD` shows how much equal code
differs. Compilation is not timed.
"""

from __future__ import annotations

import fnmatch
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

STARTS, BURSTS, SECONDS = 5, 6, 0.15


def works() -> dict:
    """The timed functions by name: the cases of `python -m bench`, and decoding steps with little work."""
    import numpy as np

    import regard as rg
    from bench.cases import CASES
    from bench.engines import ENGINES

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

    def keys(rows: int, count: int, dtype: str, mask):
        def prepare():
            q, k, v = (
                np.random.default_rng(0).standard_normal((2, size, 128), dtype=np.float32)
                for size in (rows, count, count)
            )
            if dtype == "bfloat16":
                import ml_dtypes

                q, k, v = (array.astype(ml_dtypes.bfloat16) for array in (q, k, v))
            return lambda: rg.attention(q, k, v, mask=mask)

        return prepare

    cached = {f"cache-{count}": steps(8, count) for count in (64, 1024)}
    # Calls in which many keys are summed: all rows, the last ones, and a decoding step.
    sums = {
        f"sums-{name}-{size}k-{dtype}": keys(rows, size * 1024, dtype, mask)
        for name, rows, mask in (("dense", 1024, None), ("causal", 2048, rg.causal()), ("decode", 1, None))
        for size in (2, 8, 32)
        for dtype in ("float32", "bfloat16")
    }
    return {each.name: case(each) for each in CASES} | cached | sums


def serve() -> None:
    """The process of one checkout: a line with a name prepares that case, any other line times one burst of it."""
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
        while time.perf_counter() - start < SECONDS or not calls:
            run()
            calls += 1
        print((time.perf_counter() - start) / calls, flush=True)


def side(checkout: str) -> subprocess.Popen:
    """Starts the process of a checkout."""
    both = Path(checkout).resolve() / "src", Path(__file__).resolve().parents[1]  # regard of theirs, benchmarks of ours
    env = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, both))}
    command = [sys.executable, __file__, "serve"]
    return subprocess.Popen(command, env=env, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def request(process: subprocess.Popen, line: str) -> str:
    """Sends a line to a process and returns its reply."""
    process.stdin.write(f"{line}\n")
    process.stdin.flush()
    return process.stdout.readline().strip()


def compare(old: str, new: str, names: list[str], start: int) -> dict[str, list[float]]:
    """The median time of each case in both checkouts, in new processes."""
    sides = [side(old), side(new)]
    for each in sides:
        each.stdout.readline()
    found = {}
    for name in names:
        spans: list[list[float]] = [[], []]
        for each in sides:
            assert request(each, name) == "ready", name
        for burst in range(BURSTS):
            for index in (0, 1) if (burst + start) % 2 else (1, 0):
                spans[index].append(float(request(sides[index], "time")))
        found[name] = [statistics.median(each) for each in spans]
    for each in sides:
        each.communicate()
    return found


def main(old: str, new: str, *patterns: str) -> None:
    probes = [side(old), side(new)]
    offered = [each.stdout.readline().split() for each in probes]
    for each in probes:
        each.communicate()
    names = [
        name
        for name in offered[0]
        if name in offered[1] and any(fnmatch.fnmatch(name, pattern) for pattern in patterns or ("*",))
    ]
    starts = [compare(old, new, names, start) for start in range(STARTS)]
    for name in names:
        before, after = (statistics.median(start[name][index] for start in starts) for index in (0, 1))
        ratios = sorted(start[name][0] / start[name][1] for start in starts)
        spread = f"{ratios[0]:.3f} to {ratios[-1]:.3f}"
        print(f"{name:30} {before * 1e3:9.3f} ms {after * 1e3:9.3f} ms   {statistics.median(ratios):.3f} ({spread})")


if __name__ == "__main__":
    serve() if sys.argv[1:] == ["serve"] else main(*sys.argv[1:])
