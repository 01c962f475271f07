"""transformers' eager attention holds the matrix of weights: 256 MiB for 8192 rows."""

from pathlib import Path
from types import SimpleNamespace

import torch
from transformers.models.llama.modeling_llama import eager_attention_forward


def peak():
    """The most memory so far, in MiB, as Linux counts it."""
    return int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) / 1024


x, module = torch.ones(1, 1, 8192, 16), SimpleNamespace(num_key_value_groups=1, training=False)
before = peak()
eager_attention_forward(module, x, x, x, None, 0.25)
grew = peak() - before
print(f"{grew:.0f} MiB")
assert grew > 250
