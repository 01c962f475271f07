"""regard's reference engine, which is float64 NumPy, holds the matrix of weights: 256 MiB for 8192 rows."""

import resource
import sys

import numpy as np

import regard as rg

x = np.ones((1, 8192, 16), np.float32)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
rg.attention(x, x, x, engine="reference")
unit = 2**20 if sys.platform == "darwin" else 2**10
grew = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / unit
print(f"{grew:.0f} MiB")
assert grew > 250
