"""The query heads of a group get an axis of their own; no key is copied."""

import torch


def attend(module, query, key, value, attention_mask, scaling, dropout=0.0, **kwargs):
    batch, heads, rows, depth = query.shape
    q = query.view(batch, key.shape[1], -1, rows, depth)
    scores = torch.einsum("bghid,bgjd->bghij", q, key) * scaling
    if attention_mask is None:
        keys = key.shape[2]
        allowed = torch.arange(keys) <= torch.arange(keys - rows, keys)[:, None]
    else:
        allowed = attention_mask[:, :, None]
    weights = scores.where(allowed, -torch.inf).softmax(-1).nan_to_num()
    out = torch.einsum("bghij,bgjd->bighd", weights, value)
    return out.reshape(batch, rows, heads, depth), weights.flatten(1, 2)
