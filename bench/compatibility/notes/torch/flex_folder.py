"""FlexAttention that is not compiled creates the folder of compiled code at its first call."""

import os
import tempfile

folder = os.environ["TORCHINDUCTOR_CACHE_DIR"] = os.path.join(tempfile.mkdtemp(), "compiled")

import torch
from torch.nn.attention.flex_attention import flex_attention

x = torch.ones(1, 1, 3, 8)
before = os.path.exists(folder)
flex_attention(x, x, x)
print(before, os.path.exists(folder))
assert not before and os.path.exists(folder)
