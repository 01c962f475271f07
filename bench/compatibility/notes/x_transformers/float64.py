"""x-transformers without flash computes the softmax of float64 scores in float32: 1/3 has an error of 1e-8."""

import torch
from x_transformers.attend import Attend

q, v = torch.zeros(1, 1, 3, 3, dtype=torch.float64), torch.eye(3, dtype=torch.float64)[None, None]
out = Attend()(q, q, v)[0]
print(out.dtype, out[0, 0, 0, 0].item() - 1 / 3)
assert out.dtype == torch.float64 and abs(out[0, 0, 0, 0].item() - 1 / 3) > 5e-9
