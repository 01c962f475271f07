"""torch's SDPA lets a NaN in a masked value through: 0 · NaN is NaN."""

import torch

q, v = torch.zeros(1, 1, 3, 3), torch.eye(3)[None, None].clone()
v[0, 0, 2] = float("nan")
mask = torch.tensor([[True, True, False]] * 3)  # no row attends to key 2
out = torch.nn.functional.scaled_dot_product_attention(q, q, v, attn_mask=mask)
print(out[0, 0])
assert out.isnan().all()
