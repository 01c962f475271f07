"""Heads become entries of the batch."""

import torch
from torch import nn


class CausalHeads(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.W_q, self.W_k, self.W_v, self.W_o = (nn.Linear(width, width, bias=False) for _ in range(4))

    def forward(self, x):
        batch, n, width = x.shape
        depth = width // self.heads

        def split(y):
            return y.view(batch, n, self.heads, depth).transpose(1, 2).reshape(batch * self.heads, n, depth)

        q, k, v = split(self.W_q(x)), split(self.W_k(x)), split(self.W_v(x))
        scores = torch.bmm(q, k.transpose(1, 2)) * depth**-0.5 + torch.full((n, n), -torch.inf).triu(1)
        out = torch.bmm(scores.softmax(-1), v).view(batch, self.heads, n, depth)
        return self.W_o(out.transpose(1, 2).reshape(batch, n, width))
