"""transformers' sdpa attention ignores is_causal=True where an attention_mask is given."""

from types import SimpleNamespace

import torch
from transformers.integrations.sdpa_attention import sdpa_attention_forward

module = SimpleNamespace(num_key_value_groups=1)
x, v, mask = torch.zeros(1, 1, 3, 3), torch.eye(3)[None, None], torch.ones(1, 1, 3, 3, dtype=torch.bool)
weights = sdpa_attention_forward(module, x, x, v, mask, is_causal=True)[0][0, :, 0]
print(weights)
assert (weights[0] > 0).all()  # row 0 attends to keys 1 and 2
