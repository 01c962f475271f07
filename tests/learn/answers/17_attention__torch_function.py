"""torch's own function on clean inputs, one row of values at a time."""

import torch
import torch.nn.functional as F


def attention(q, k, v, mask=None, causal=False, scale=None):
    rows, keys = q.size(-2), k.size(-2)
    allowed = torch.ones(rows, keys, dtype=torch.bool, device=q.device)
    if causal:
        allowed = allowed.tril(diagonal=keys - rows)
    if mask is not None:
        allowed = torch.logical_and(allowed, mask)
    g = q.size(1) // k.size(1)
    k, v = k.repeat_interleave(g, dim=1), v.repeat_interleave(g, dim=1)
    allowed = allowed.expand(q.size(0), q.size(1), rows, keys)
    # each row becomes a batch entry of one query with keys and values of its own
    own = allowed.reshape(-1, keys, 1)
    each = lambda x: x[:, :, None].expand(-1, -1, rows, -1, -1).reshape(-1, keys, x.size(-1))  # noqa: E731
    clean = [torch.where(own, each(x), 0) for x in (k, v)]
    flat = q.reshape(-1, 1, q.size(-1))
    out = F.scaled_dot_product_attention(flat, *clean, attn_mask=own.mT, scale=scale)
    out = torch.where(own.any(1, keepdim=True), out, 0)
    return out.view(*q.shape[:-1], v.size(-1))
