"""Right answers to the exercises of chapter 12."""

import numpy as np
import torch
from torch.nn.functional import scaled_dot_product_attention


def merge__logaddexp(parts):
    """Weights that sum to 1, from the lse of all parts."""
    lse = np.logaddexp.reduce([lse for _, lse in parts])
    out = 0
    for part, own in parts:
        weight = np.exp(own - np.where(np.isneginf(lse), 0, lse))[:, None]
        out = out + weight * np.nan_to_num(part) * (weight > 0)
    return out, lse


def part(q, k, v):
    s = q @ k.T / np.sqrt(q.shape[1])
    lse = np.logaddexp.reduce(s, axis=1)
    return np.exp(s - lse[:, None]) @ v, lse


def streaming__merge(q, k, v, block):
    """A part (out, lse) for each block; all are merged at the end."""
    parts = [part(q, k[at : at + block], v[at : at + block]) for at in range(0, len(k), block)]
    return merge__logaddexp(parts)[0] if parts else np.zeros((len(q), v.shape[1]))


def step__torch(cache, q, k, v):
    """With a function of torch and a boolean mask."""
    q, k, v, keys, values = (torch.as_tensor(x) for x in (q, k, v, *cache))
    keys, values = torch.cat([keys, k], 1), torch.cat([values, v], 1)
    past, rows = keys.shape[1] - q.shape[1], q.shape[1]
    allowed = torch.ones(rows, past + rows, dtype=torch.bool).tril(past)
    out = scaled_dot_product_attention(q[None], keys[None], values[None], attn_mask=allowed)[0]
    return out, (keys, values)
