"""torch's SDPA aligns a causal mask with the first key: of 2 rows over 4 keys, row 0 attends to key 0 only."""

import torch

q, k, v = torch.zeros(1, 1, 2, 4), torch.zeros(1, 1, 4, 4), torch.eye(4)[None, None]
weights = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)[0, 0]
print(weights)  # values are one-hot, so the output is the matrix of weights
assert weights[0].tolist() == [1, 0, 0, 0]
