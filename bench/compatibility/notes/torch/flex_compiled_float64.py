"""FlexAttention takes float64 on the CPU, and compiled it refuses it."""

import torch
from torch.nn.attention.flex_attention import flex_attention

x = torch.ones(1, 1, 16, 16, dtype=torch.float64)
print(flex_attention(x, x, x).dtype)
try:
    torch.compile(flex_attention)(x, x, x)
    raise AssertionError("it was computed")
except torch._inductor.exc.InductorError as error:
    print(str(error)[:200])
