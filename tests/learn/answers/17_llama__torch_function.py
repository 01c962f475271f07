"""The function of PyTorch."""

import torch
from torch.nn.functional import scaled_dot_product_attention


def attend(module, query, key, value, attention_mask, scaling=None, dropout=0.0, **kwargs):
    if attention_mask is None:
        attention_mask = torch.ones(query.shape[2], key.shape[2]).bool().tril(key.shape[2] - query.shape[2])
    out = scaled_dot_product_attention(query, key, value, attn_mask=attention_mask, scale=scaling, enable_gqa=True)
    return out.transpose(1, 2).contiguous(), None
