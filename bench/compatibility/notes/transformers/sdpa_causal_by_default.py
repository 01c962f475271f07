"""transformers' sdpa attention is causal without a mask, unless is_causal=False is passed or set on the module."""

from types import SimpleNamespace

import torch
from transformers.integrations.sdpa_attention import sdpa_attention_forward

module = SimpleNamespace(num_key_value_groups=1)
x, v = torch.zeros(1, 1, 2, 2), torch.eye(2)[None, None]
weights = sdpa_attention_forward(module, x, x, v, None)[0][0, :, 0]
print(weights)
assert weights[0].tolist() == [1, 0]
