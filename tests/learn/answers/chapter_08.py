"""Right answers to the exercises of chapter 8."""

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

import regard as rg


def split__einsum(x, h):
    """einsum as a change of axes."""
    return torch.einsum("bnhd->bhnd", x.reshape(*x.shape[:2], h, x.shape[2] // h)).contiguous()


def join__cat(x):
    """The heads, concatenated."""
    return torch.cat([x[:, head] for head in range(x.shape[1])], dim=-1)


class Projections(nn.Module):
    """The four matrices."""

    def __init__(self, d_model, heads):
        super().__init__()
        self.heads = heads
        self.W_q, self.W_k, self.W_v, self.W_o = [nn.Linear(d_model, d_model, False) for _ in range(4)]


class multi_head__einsum(Projections):
    """einsum on (batch, n, heads, depth), without moving axes."""

    def forward(self, x, mask=None, return_weights=False):
        B, n, width = x.shape
        q, k, v = (F.linear(x, W.weight).reshape(B, n, self.heads, -1) for W in (self.W_q, self.W_k, self.W_v))
        logits = torch.einsum("bihd,bjhd->bhij", q, k) * (self.heads / width) ** 0.5
        if mask is not None:
            logits = torch.where(mask, logits, torch.tensor(float("-inf")))
        A = F.softmax(logits, dim=-1)
        out = self.W_o(torch.einsum("bhij,bjhd->bihd", A, v).reshape(B, n, width))
        if return_weights:
            return out, A
        return out


def repeat_kv__list(keys, times):
    """A list of heads."""
    return torch.stack([head for head in keys.unbind(1) for _ in range(times)], 1)


def attention__regard(q, k, v, mask=None, causal=False, scale=None):
    """regard's own attention, with both masks in one rule."""
    allowed = rg.causal() if causal else rg.everything()
    return rg.attention(q, k, v, mask=allowed if mask is None else allowed & rg.dense(mask), scale=scale)


def heads__axis(q, k, v, count):
    """regard's attention, with an axis of heads."""
    cut = [each.reshape(1, len(each), count, -1).swapaxes(1, 2) for each in (q, k, v)]
    return np.hstack(rg.attention(*cut)[0])
