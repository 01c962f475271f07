"""transformers' eager attention computes the softmax of float64 scores in float32: 1/3 has an error of 1e-8."""

from types import SimpleNamespace

import torch
from transformers.models.llama.modeling_llama import eager_attention_forward

module = SimpleNamespace(num_key_value_groups=1, training=False)
x = torch.zeros(1, 1, 3, 3, dtype=torch.float64)
weights = eager_attention_forward(module, x, x, x, None, 1.0)[1]
print(weights.dtype, weights[0, 0, 0, 0].item() - 1 / 3)
assert weights.dtype == torch.float64 and abs(weights[0, 0, 0, 0].item() - 1 / 3) > 5e-9
