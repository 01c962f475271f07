"""x-transformers without flash gives 0 in a row that a mask hides, and NaN in a row that a bias of −∞ hides."""

import torch
from x_transformers.attend import Attend

q, v, mask = torch.zeros(1, 1, 2, 2), torch.eye(2)[None, None], torch.tensor([[False, False], [True, True]])[None, None]
by_mask = Attend()(q, q, v, mask=mask)[0][0, 0]
by_bias = Attend()(q, q, v, attn_bias=torch.where(mask, 0.0, -torch.inf))[0][0, 0]
print(by_mask[0], by_bias[0])
assert (by_mask[0] == 0).all() and by_bias[0].isnan().all()
