"""x-transformers gives query head h the key head h mod G; in torch, JAX and ONNX it is h // (H / G)."""

import torch
from x_transformers.attend import Attend

q, k = torch.zeros(1, 4, 1, 1), torch.zeros(1, 2, 1, 1)
v = torch.tensor([0.0, 1.0]).reshape(1, 2, 1, 1)  # the value of a key head is its number
heads = Attend()(q, k, v)[0].flatten().tolist()
torchs = torch.nn.functional.scaled_dot_product_attention(q, k, v, enable_gqa=True).flatten().tolist()
print(heads, torchs)
assert heads == [0, 1, 0, 1] and torchs == [0, 0, 1, 1]
