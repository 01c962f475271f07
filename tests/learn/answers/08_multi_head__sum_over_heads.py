"""The sum of what each head contributes through its columns of W_o."""

import torch
from torch import nn


class MultiHead(nn.Module):
    def __init__(self, d_model, heads):
        super().__init__()
        self.heads = heads
        self.W_q, self.W_k = nn.Linear(d_model, d_model, bias=False), nn.Linear(d_model, d_model, bias=False)
        self.W_v, self.W_o = nn.Linear(d_model, d_model, bias=False), nn.Linear(d_model, d_model, bias=False)

    def forward(self, x, mask=None, return_weights=False):
        split = lambda y: torch.stack(y.chunk(self.heads, -1), 1)  # noqa: E731
        q, k, v = split(self.W_q(x)), split(self.W_k(x)), split(self.W_v(x))
        scores = (q @ k.mT) * q.size(-1) ** -0.5
        exps = (scores - scores.detach().amax(-1, keepdim=True)).exp()
        exps = exps if mask is None else exps * mask
        weights = exps / exps.sum(-1, keepdim=True)
        each = torch.stack(self.W_o.weight.chunk(self.heads, 1))  # (heads, d_model, depth)
        out = (weights @ v @ each.mT).sum(1)
        return (out, weights) if return_weights else out
