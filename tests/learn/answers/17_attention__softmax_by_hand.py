"""The softmax written out; functions for each step."""

import math

import torch


def attention(q, k, v, mask=None, causal=False, scale=None):
    scale = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    k, v = shared(k, q.shape[1]), shared(v, q.shape[1])
    allowed = table(q, k, mask, causal)
    w = weights((q * scale) @ k.transpose(2, 3), allowed)
    return (w[..., None] * v[:, :, None].masked_fill(~allowed[..., None], 0)).sum(3)


def shared(x, heads):
    return x[:, torch.arange(heads, device=x.device) * x.shape[1] // heads]


def table(q, k, mask, causal):
    rows, keys = q.shape[2], k.shape[2]
    allowed = torch.full((*q.shape[:3], keys), True, device=q.device)
    if causal:
        positions = torch.arange(keys - rows, keys, device=q.device)
        allowed = allowed & (torch.arange(keys, device=q.device) <= positions[:, None])
    return allowed if mask is None else allowed & mask


def weights(scores, allowed):
    low = scores.masked_fill(~allowed, -math.inf)
    top = low.detach().amax(-1, keepdim=True)
    top = torch.where(top == -math.inf, torch.zeros_like(top), top)
    powers = torch.exp(scores.masked_fill(~allowed, 0) - top).masked_fill(~allowed, 0)
    total = powers.sum(-1, keepdim=True)
    return powers / torch.where(total == 0, torch.ones_like(total), total)
