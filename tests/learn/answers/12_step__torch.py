"""With a function of torch and a boolean mask."""

import torch
from torch.nn.functional import scaled_dot_product_attention


def step(cache, q, k, v):
    q, k, v, keys, values = (torch.as_tensor(x) for x in (q, k, v, *cache))
    keys, values = torch.cat([keys, k], 1), torch.cat([values, v], 1)
    past, rows = keys.shape[1] - q.shape[1], q.shape[1]
    allowed = torch.ones(rows, past + rows, dtype=torch.bool).tril(past)
    out = scaled_dot_product_attention(q[None], keys[None], values[None], attn_mask=allowed)[0]
    return out, (keys, values)
