"""One step of decoding over a cache in 8 bits, next to one that stores the same numbers in its dtype.

python bench/eight_bits.py
"""

from __future__ import annotations

import ml_dtypes
import numpy as np

import regard as rg
from bench.interleave import Pace, interleaved, seconds

PACE = Pace(rounds=9, burst=0.1, pause=0.02)
DTYPES = {"float32": np.float32, "bfloat16": ml_dtypes.bfloat16, "float16": np.float16}
SIZES = [
    # sequences, query heads, key heads, depth, keys
    (1, 8, 8, 64, 8192),
    (1, 32, 8, 64, 8192),
    (1, 32, 8, 128, 8192),
    (1, 8, 1, 64, 8192),
    (8, 8, 8, 64, 2048),
    (1, 12, 12, 64, 1024),
]


def measure(size: tuple[int, int, int, int, int], dtype: str) -> tuple[float, float]:
    """Seconds of a step in 8 bits and in the dtype."""
    B, H, G, D, K = size
    random = np.random.default_rng(0)
    q, k, v = (
        random.standard_normal((B, heads, rows, D), np.float32).astype(DTYPES[dtype])
        for heads, rows in ((H, 1), (G, K), (G, K))
    )
    steps = {}
    for storage in ("int8", None):
        cache = rg.KVCache(G, D, batch=B, dtype=dtype, storage=storage)
        cache.append(k[:, :, :-1], v[:, :, :-1])
        cache.append(k[:, :, -1:], v[:, :, -1:])
        steps[str(storage)] = lambda cache=cache: cache.attend(q)
    spans = interleaved(steps, PACE)
    return seconds(spans["int8"]), seconds(spans["None"])


if __name__ == "__main__":
    print(f"{'sequences, heads, key heads, depth, keys':42}  {'dtype':10}{'8 bits':>10}{'dtype':>10}{'ratio':>8}")
    for size in SIZES:
        for dtype in DTYPES:
            eight, whole = measure(size, dtype)
            print(f"{size!s:42}  {dtype:10}{1e6 * eight:7.0f} µs{1e6 * whole:7.0f} µs{whole / eight:8.2f}")
