"""torch.nn.MultiheadAttention gives NaN in a fully masked row if it returns weights, as by default, and 0 if not."""

import torch

x, mask = torch.eye(2)[None], torch.tensor([[True, True], [False, False]])  # row 0 may attend to nothing
attend = torch.nn.MultiheadAttention(2, 1, bias=False, batch_first=True)
with_weights = attend(x, x, x, attn_mask=mask)[0][0, 0]
without = attend(x, x, x, attn_mask=mask, need_weights=False)[0][0, 0]
print(with_weights, without)
assert with_weights.isnan().all() and (without == 0).all()
