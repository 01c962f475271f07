"""FlexAttention that is not compiled holds the matrix of weights: 256 MiB for 8192 rows."""

import resource
import sys

import torch
from torch.nn.attention.flex_attention import flex_attention

x = torch.ones(1, 1, 8192, 16)
flex_attention(x[:, :, :8], x[:, :, :8], x[:, :, :8])
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
flex_attention(x, x, x)
unit = 2**20 if sys.platform == "darwin" else 2**10
grew = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / unit
print(f"{grew:.0f} MiB")
assert grew > 250
