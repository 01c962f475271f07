"""Two processes on gloo beside one process with two threads: time, and memory of each rank beside what `explain` says.

    python bench/processes.py [tokens] [--rate 1gbit]

Both use the same two cores. Each burst measures one, then the other; medians over bursts, and their ratio. Without
memory of its own a process would not be slower: what differs is the copies, the transfer, and threads that wait.
"""

import argparse
import ctypes
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

import numpy as np

SHAPES = {"heads": 8, "key_heads": 4, "depth": 64}
BURSTS, CALLS = 5, 1


def made(tokens, dtype):
    """q, k and v of all tokens."""
    import torch

    torch.manual_seed(0)
    heads, key_heads, depth = SHAPES.values()
    return [torch.randn(h, tokens, depth).to(getattr(torch, dtype)) for h in (heads, key_heads, key_heads)]


def peak_memory():
    """The largest resident memory since `forget_peak`, in bytes."""
    text = Path("/proc/self/status").read_text()
    return 1024 * int(text.split("VmHWM:")[1].split()[0])


def forget_peak():
    """Counts the largest resident memory from now on; returns what is resident now, without what was freed."""
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")
    return peak_memory()


def timed(call):
    """Seconds of a call, the mean over some."""
    begin = time.perf_counter()
    for _ in range(CALLS):
        call()
    return (time.perf_counter() - begin) / CALLS


def rank_of(folder, rank, ranks, tokens, dtype, placement):
    """One process: answers `go` on its standard input with seconds, and `memory` with bytes."""
    import torch
    import torch.distributed as dist

    import regard as rg
    import regard.parallel as rp

    torch.set_num_threads(1)
    dist.init_process_group("gloo", store=dist.FileStore(f"{folder}/store", ranks), rank=rank, world_size=ranks)
    place = rp.place(tokens, ranks=ranks, mask=rg.causal(), dtype=dtype, among=placement, **SHAPES)
    mine = [place.shard(each, axis=1, rank=rank).clone() for each in made(tokens, dtype)]

    def call():
        return rp.attention(*mine, mask=rg.causal(), place=place)

    few = rp.place(512, ranks=ranks, mask=rg.causal(), dtype=dtype, among=placement, **SHAPES)
    short = [few.shard(each[:, :512], axis=1, rank=rank).clone() for each in made(512, dtype)]
    rp.attention(*short, mask=rg.causal(), place=few)  # compiles
    for line in sys.stdin:
        if line.strip() == "go":
            print(json.dumps(timed(call)), flush=True)
        else:
            before = forget_peak()
            call()
            own = sum(each.nbytes for each in mine)
            print(json.dumps([peak_memory() - before + own, int(rp.explain(place).memory[rank])]), flush=True)
    dist.destroy_process_group()


def one_process(tokens, dtype):
    """A call of one process with two threads, which answers in the same way."""
    import torch

    import regard as rg

    torch.set_num_threads(2)
    q, k, v = made(tokens, dtype)
    call = lambda: rg.attention(q, k, v, mask=rg.causal())  # noqa: E731
    call()
    for _ in sys.stdin:
        print(json.dumps(timed(call)), flush=True)


def started(*arguments, threads):
    """A process of this file."""
    environment = os.environ | {"OMP_NUM_THREADS": f"{threads}"}
    command = [sys.executable, __file__, *map(str, arguments)]
    return subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def said(processes, word):
    """What each process answers."""
    for each in processes:
        print(word, file=each.stdin, flush=True)
    return [json.loads(each.stdout.readline()) for each in processes]


def compared(tokens, dtype, placement):
    """(seconds of one process, of two, (memory, as explain said) of each rank)."""
    with tempfile.TemporaryDirectory() as folder:
        alone = [started("alone", tokens, dtype, threads=2)]
        both = [started("rank", folder, rank, 2, tokens, dtype, placement, threads=1) for rank in range(2)]
        times = []
        for _ in range(BURSTS):
            times.append((said(alone, "go")[0], max(said(both, "go"))))
        memory = said(both, "memory")
        for each in [*alone, *both]:
            each.stdin.close()
            each.wait()
    one, two = np.array(times).T
    return median(one), median(two), median(two / one), memory


def main():
    """Prints a line for each dtype and placement."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tokens", nargs="?", type=int, default=16384)
    tokens = parser.parse_args().tokens
    print(f"causal, {tokens:,} tokens, {SHAPES}; medians of {BURSTS} bursts")
    for dtype in ("float32", "bfloat16"):
        for placement in ("zigzag", "excess"):
            one, two, ratio, memory = compared(tokens, dtype, placement)
            shares = ", ".join(f"{used / 1e6:.0f} MB, explain {said_ / 1e6:.0f}" for used, said_ in memory)
            print(
                f"{dtype:<9} {placement:<8} one {one * 1e3:7.1f} ms  two {two * 1e3:7.1f} ms  {ratio:.2f} ×  {shares}"
            )


if __name__ == "__main__":
    if sys.argv[1:2] == ["alone"]:
        one_process(int(sys.argv[2]), sys.argv[3])
    elif sys.argv[1:2] == ["rank"]:
        folder, rank, ranks, tokens, dtype, placement = sys.argv[2:]
        rank_of(folder, int(rank), int(ranks), int(tokens), dtype, placement)
    else:
        main()
