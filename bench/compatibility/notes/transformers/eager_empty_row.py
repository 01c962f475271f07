"""transformers' eager attention gives the mean of all values, forbidden ones included, in a fully masked row."""

from types import SimpleNamespace

import torch
from transformers.masking_utils import eager_mask
from transformers.models.llama.modeling_llama import eager_attention_forward

module = SimpleNamespace(num_key_value_groups=1, training=False)
x, v = torch.zeros(1, 1, 2, 2), torch.eye(2)[None, None]
mask = eager_mask(1, 2, 2, attention_mask=torch.tensor([[False, True]]))  # padding on the left: row 0 sees nothing
out = eager_attention_forward(module, x, x, v, mask, 1.0)[0][0, :, 0]
print(mask[0, 0], out)
assert out[0].tolist() == [0.5, 0.5]
