"""FlexAttention lets a NaN in a masked value through, but not one in a masked key."""

import torch
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

x, bad = torch.ones(1, 1, 3, 8), torch.ones(1, 1, 3, 8)
bad[0, 0, 2] = float("nan")
blocks = create_block_mask(lambda b, h, q, k: k < 2, 1, 1, 3, 3, device="cpu")  # no row attends to key 2
value, key = flex_attention(x, x, bad, block_mask=blocks), flex_attention(x, bad, x, block_mask=blocks)
print(value[0, 0, :, 0], key[0, 0, :, 0])
assert value.isnan().all() and (key == 1).all()
