"""transformers' eager attention gives NaN in a row that a mask of −∞ hides; its own masks have finfo.min instead."""

from types import SimpleNamespace

import torch
from transformers.models.llama.modeling_llama import eager_attention_forward

module = SimpleNamespace(num_key_value_groups=1, training=False)
x, v, mask = torch.zeros(1, 1, 2, 2), torch.eye(2)[None, None], torch.zeros(1, 1, 2, 2)
mask[0, 0, 0] = -torch.inf
out = eager_attention_forward(module, x, x, v, mask, 1.0)[0][0, :, 0]
print(out)
assert out[0].isnan().all() and out[1].tolist() == [0.5, 0.5]
