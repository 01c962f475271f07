"""x-transformers without flash holds the matrix of weights: 256 MiB for 8192 rows."""

from pathlib import Path

import torch
from x_transformers.attend import Attend


def peak():
    """The most memory so far, in MiB, as Linux counts it."""
    return int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) / 1024


x = torch.ones(1, 1, 8192, 16)
before = peak()
Attend()(x, x, x)
grew = peak() - before
print(f"{grew:.0f} MiB")
assert grew > 250
