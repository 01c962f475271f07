"""torch.nn.MultiheadAttention hides the keys where a boolean mask is true; torch's SDPA attends to them."""

import torch

x, mask = torch.eye(2)[None], torch.tensor([[True, False], [True, False]])
attend = torch.nn.MultiheadAttention(2, 1, bias=False, batch_first=True)
weights = attend(x, x, x, attn_mask=mask)[1][0]
print(weights)
print(torch.nn.functional.scaled_dot_product_attention(x, x, x, attn_mask=mask)[0])
assert weights.tolist() == [[0, 1], [0, 1]]
