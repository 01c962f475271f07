"""transformers' eager attention lets a NaN in a masked key or value through."""

from types import SimpleNamespace

import torch
from transformers.models.llama.modeling_llama import eager_attention_forward

module, x = SimpleNamespace(num_key_value_groups=1, training=False), torch.ones(1, 1, 2, 2)
bad, mask = x.clone(), torch.zeros(1, 1, 2, 2)
bad[0, 0, 1], mask[..., 1] = torch.nan, torch.finfo(torch.float32).min
key = eager_attention_forward(module, x, bad, x, mask, 1.0)[0]
value = eager_attention_forward(module, x, x, bad, mask, 1.0)[0]
print(key.flatten(), value.flatten())
assert key.isnan().all() and value.isnan().all()
