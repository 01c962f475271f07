"""regard's reference engine, which is float64 NumPy, holds the matrix of weights: 256 MiB for 8192 rows."""

from pathlib import Path

import numpy as np

import regard as rg


def peak():
    """The most memory so far, in MiB, as Linux counts it."""
    return int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) / 1024


x = np.ones((1, 8192, 16), np.float32)
before = peak()
rg.attention(x, x, x, engine="reference")
grew = peak() - before
print(f"{grew:.0f} MiB")
assert grew > 250
