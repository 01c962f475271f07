"""x-transformers caps the score after the bias is added, so a bias cannot exceed the cap."""

import torch
from x_transformers.attend import Attend

q, v, bias = torch.zeros(1, 1, 2, 2), torch.eye(2)[None, None], torch.tensor([[100.0, 0.0]] * 2)[None, None]
weights = Attend(softclamp_logits=True, logit_softclamp_value=1.0)(q, q, v, attn_bias=bias)[0][0, 0, 0]
print(weights)  # with the bias after the cap: 1 and 0
assert weights[0].item() < 0.74
