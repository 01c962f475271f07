"""FlexAttention returns no lse for 0 rows."""

import torch
from torch.nn.attention.flex_attention import AuxRequest, flex_attention

x = torch.ones(1, 1, 3, 8)
out, aux = flex_attention(x[:, :, :0], x, x, return_aux=AuxRequest(lse=True))
print(out.shape, aux.lse)
assert aux.lse is None
