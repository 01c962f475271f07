"""torch's SDPA combines attn_mask and is_causal in the default CPU kernel; the math backend refuses the same call."""

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

q, v = torch.zeros(1, 1, 3, 3), torch.eye(3)[None, None]
mask = torch.tensor([[True, False, True]] * 3)
weights = torch.nn.functional.scaled_dot_product_attention(q, q, v, attn_mask=mask, is_causal=True)[0, 0]
print(weights)
assert weights.tolist() == [[1, 0, 0], [1, 0, 0], [0.5, 0, 0.5]]
try:
    with sdpa_kernel(SDPBackend.MATH):
        torch.nn.functional.scaled_dot_product_attention(q, q, v, attn_mask=mask, is_causal=True)
    raise AssertionError("the math backend computed it")
except RuntimeError as error:
    print("math:", error)
