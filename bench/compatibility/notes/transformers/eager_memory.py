"""transformers' eager attention holds the matrix of weights: 256 MiB for 8192 rows."""

import resource
import sys
from types import SimpleNamespace

import torch
from transformers.models.llama.modeling_llama import eager_attention_forward

x, module = torch.ones(1, 1, 8192, 16), SimpleNamespace(num_key_value_groups=1, training=False)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
eager_attention_forward(module, x, x, x, None, 0.25)
unit = 2**20 if sys.platform == "darwin" else 2**10
grew = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / unit
print(f"{grew:.0f} MiB")
assert grew > 250
