"""One row after another, with the keys that it may attend to."""

import torch


def attention(q, k, v, mask=None, causal=False, scale=None):
    B, H, rows, D = q.shape
    G, keys = k.shape[1], k.shape[2]
    scale = D**-0.5 if scale is None else scale
    allowed = torch.ones(B, H, rows, keys, dtype=torch.bool, device=q.device)
    if causal:
        allowed = allowed & (torch.arange(keys) <= torch.arange(rows)[:, None] + keys - rows).to(q.device)
    if mask is not None:
        allowed = allowed & mask
    out = []
    for b in range(B):
        for h in range(H):
            group = h * G // H
            for row in range(rows):
                seen = allowed[b, h, row]
                weights = torch.softmax(k[b, group, seen] @ q[b, h, row] * scale, 0)
                out.append(weights @ v[b, group, seen])
    if not out:
        return q.new_zeros(B, H, rows, v.shape[-1])
    return torch.stack(out).view(B, H, rows, v.shape[-1])
