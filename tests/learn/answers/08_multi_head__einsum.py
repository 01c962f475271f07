"""einsum on (batch, n, heads, depth), without moving axes."""

import torch
import torch.nn.functional as F
from torch import nn


class MultiHead(nn.Module):
    def __init__(self, d_model, heads):
        super().__init__()
        self.h = heads
        self.W_q, self.W_k, self.W_v, self.W_o = [nn.Linear(d_model, d_model, False) for _ in range(4)]

    def forward(self, x, mask=None, return_weights=False):
        B, n, width = x.shape
        q, k, v = (F.linear(x, W.weight).reshape(B, n, self.h, -1) for W in (self.W_q, self.W_k, self.W_v))
        logits = torch.einsum("bihd,bjhd->bhij", q, k) * (self.h / width) ** 0.5
        if mask is not None:
            logits = torch.where(mask, logits, torch.tensor(float("-inf")))
        A = F.softmax(logits, dim=-1)
        out = self.W_o(torch.einsum("bhij,bjhd->bihd", A, v).reshape(B, n, width))
        if return_weights:
            return out, A
        return out
