"""transformers' sdpa attention with is_causal=True and 3 keys: 1 row attends to all, of 2 rows the first to key 0."""

from types import SimpleNamespace

import torch
from transformers.integrations.sdpa_attention import sdpa_attention_forward

module = SimpleNamespace(num_key_value_groups=1)
k, v = torch.zeros(1, 1, 3, 3), torch.eye(3)[None, None]
one, two = (sdpa_attention_forward(module, k[:, :, :n], k, v, None, is_causal=True)[0][0, :, 0] for n in (1, 2))
print(one, two, sep="\n")
assert (one[0] > 0).all() and two.tolist() == [[1, 0, 0], [0.5, 0.5, 0]]
