"""The attention of chapter 8, called with other names."""

import torch


def attention(q, k, v, mask=None, causal=False, scale=None):
    rows, keys = q.shape[-2], k.shape[-2]
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    allowed = torch.ones(rows, keys, dtype=torch.bool, device=q.device)
    if causal:
        allowed = allowed.tril(keys - rows)
    if mask is not None:
        allowed = allowed & mask
    allowed = allowed.expand(*q.shape[:-1], keys)
    scores = q @ k.transpose(-2, -1) * (q.shape[-1] ** -0.5 if scale is None else scale)
    weights = scores.masked_fill(~allowed, -torch.inf).softmax(-1).masked_fill(~allowed, 0)
    seen = v.unsqueeze(-3).masked_fill(~allowed.unsqueeze(-1), 0)
    return (weights.unsqueeze(-2) @ seen).squeeze(-2)


def attend(module, query, key, value, attention_mask, scaling, dropout=0.0, **kwargs):
    out = attention(query, key, value, attention_mask, attention_mask is None, scaling)
    return out.transpose(1, 2), None
