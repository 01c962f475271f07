"""Do transfer and computation overlap? Two processes in network namespaces whose link has a limited rate.

    python bench/overlap.py [tokens] [--rate 1gbit]     (needs root, iproute2, and Linux)

Each burst measures a call, the same call without limit on the loopback (computation), and the same bytes alone over
the limited link (transfer). Overlapped, a call takes less than their sum; the goal is 0.8 of it where both are equal.
"""

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from statistics import median

HEADS, DEPTH, BURSTS = 8, 64, 5


def run(command):
    """Runs a command of iproute2."""
    subprocess.run(command.split(), check=True)


@contextlib.contextmanager
def linked(rate):
    """Two namespaces, each with one end of a link that sends at most at this rate."""
    names = [f"regard{rank}" for rank in range(2)]
    try:
        for name in names:
            run(f"ip netns add {name}")
        run(f"ip link add end0 netns {names[0]} type veth peer name end1 netns {names[1]}")
        for rank, name in enumerate(names):
            run(f"ip -n {name} addr add 10.77.0.{rank + 1}/24 dev end{rank}")
            run(f"ip -n {name} link set end{rank} up")
            run(f"ip -n {name} link set lo up")
            run(f"ip netns exec {name} tc qdisc add dev end{rank} root tbf rate {rate} burst 256kb latency 50ms")
        yield names
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "del", name], check=False)


def rank_of(folder, rank, tokens, key):
    """One process: answers `call` and `transfer` on its standard input with seconds."""
    import numpy as np
    import torch
    import torch.distributed as dist

    import regard.parallel as rp
    from regard.parallel.exchange import processes

    torch.set_num_threads(1)
    dist.init_process_group("gloo", store=dist.FileStore(f"{folder}/{key}", 2), rank=rank, world_size=2)
    place = rp.place(tokens, ranks=2, heads=HEADS, depth=DEPTH, dtype="float32", among="contiguous")
    torch.manual_seed(rank)
    q, k, v = (torch.randn(HEADS, len(place.positions(rank)), DEPTH) for _ in range(3))
    transport = processes()
    size = k.nbytes + v.nbytes

    def call():
        rp.attention(q, k, v, place=place, stripe=1)

    def transfer():
        sizes = [0 if other == rank else size for other in range(2)]
        transport.swap("bytes", np.zeros(size, np.uint8), sizes, sizes)()

    call()
    for line in sys.stdin:
        begin = time.perf_counter()
        {"call": call, "transfer": transfer}[line.strip()]()
        print(json.dumps(time.perf_counter() - begin), flush=True)
    dist.destroy_process_group()


def started(prefix, folder, rank, tokens, key, interface):
    """A process of this file."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": interface}
    command = [*prefix, sys.executable, __file__, "rank", folder, str(rank), str(tokens), key]
    return subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def said(both, word):
    """The longer of both answers."""
    for each in both:
        print(word, file=each.stdin, flush=True)
    return max(json.loads(each.stdout.readline()) for each in both)


def main():
    """Prints medians, and the share of the sum."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tokens", nargs="?", type=int, default=6144)
    parser.add_argument("--rate", default="1gbit")
    given = parser.parse_args()
    with linked(given.rate) as names, tempfile.TemporaryDirectory() as folder:
        far = [started(["ip", "netns", "exec", name], folder, rank, given.tokens, "far", f"end{rank}")
               for rank, name in enumerate(names)]  # fmt: skip
        near = [started([], folder, rank, given.tokens, "near", "lo") for rank in range(2)]
        times = []
        for _ in range(BURSTS):
            times.append((said(far, "call"), said(near, "call"), said(far, "transfer")))
        for each in [*far, *near]:
            each.stdin.close()
            each.wait()
    call, computed, sent = (median(each) for each in zip(*times, strict=True))
    print(f"{given.tokens:,} tokens, {HEADS} heads, depth {DEPTH}, float32, {given.rate}; medians of {BURSTS} bursts")
    print(f"computation {computed * 1e3:.0f} ms, transfer {sent * 1e3:.0f} ms, together {call * 1e3:.0f} ms: "
          f"{median(a / (b + c) for a, b, c in times):.2f} of the sum")  # fmt: skip


if __name__ == "__main__":
    if sys.argv[1:2] == ["rank"]:
        folder, rank, tokens, key = sys.argv[2:]
        rank_of(folder, int(rank), int(tokens), key)
    else:
        main()
