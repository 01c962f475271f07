"""Calls with a pause before each, as in a program that waits for its input: regard next to SDPA and ONNX Runtime.

    python bench/pauses.py [MILLISECONDS]

8 heads, float32, depth 64; ONNX Runtime by its standard Attention operator. The threads of a pool sleep after a pause,
and waking them takes as long as a small call. Each engine has a process, with the threads that it starts itself, and
they take turns. Printed are the median of the calls after a pause, and of the calls right after those.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

ROWS, TURNS, CALLS = (16, 32, 48, 64, 96, 128, 192, 256), 5, 60
ENGINES = ("regard", "regard, tensors", "sdpa", "onnxruntime")


def prepared(engine: str, rows: int) -> Callable[[], object]:
    """The call of an engine that is timed."""
    from bench.cases import Case
    from bench.engines import ENGINES as known

    inputs = Case("short", rows).inputs()
    if engine in known:
        return known[engine].forms(inputs)[0].run
    import torch

    import regard as rg

    tensors = [torch.from_numpy(array) for array in (inputs.q, inputs.k, inputs.v)]
    return lambda: rg.attention(*tensors)


def serve(engine: str, pause: float) -> None:
    """The process of one engine: for a line with a number of rows, the seconds of both calls."""
    known: dict[str, Callable[[], object]] = {}
    for line in sys.stdin:
        if line not in known:
            known[line] = prepared(engine, int(line))
            known[line]()
        run, spans = known[line], []
        for _ in range(CALLS):
            time.sleep(pause)
            start = time.perf_counter()
            run()
            middle = time.perf_counter()
            run()
            spans.append((middle - start, time.perf_counter() - middle))
        print(*map(statistics.median, zip(*spans, strict=True)), flush=True)


def main(milliseconds: float) -> None:
    print(f"µs of a call after {milliseconds:g} ms, and of the next one")
    command = [sys.executable, "-m", "bench.pauses", str(milliseconds)]
    root = Path(__file__).resolve().parents[1]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "cwd": root}
    processes = {engine: subprocess.Popen([*command, engine], **pipes) for engine in ENGINES}
    for rows in ROWS:
        spans: dict[str, list[list[float]]] = {engine: [] for engine in ENGINES}
        for _ in range(TURNS):
            for engine, process in processes.items():
                process.stdin.write(f"{rows}\n")
                process.stdin.flush()
                spans[engine].append([1e6 * float(each) for each in process.stdout.readline().split()])
        medians = {engine: map(statistics.median, zip(*each, strict=True)) for engine, each in spans.items()}
        columns = [f"{engine} {first:.0f} {second:.0f}" for engine, (first, second) in medians.items()]
        print(f"{rows:4} rows", *columns, sep="   ", flush=True)
    for process in processes.values():
        process.communicate()


if __name__ == "__main__":
    pause, *engine = sys.argv[1:] or ["5"]
    if engine:
        serve(*engine, float(pause) / 1e3)
    else:
        main(float(pause))
