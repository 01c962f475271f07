"""One head after another."""

import torch
from torch import nn


class MultiHead(nn.Module):
    def __init__(self, d_model, heads):
        super().__init__()
        self.depth = d_model // heads
        for name in "qkvo":
            self.add_module(f"W_{name}", nn.Linear(d_model, d_model, bias=False))

    def forward(self, x, mask=None, return_weights=False):
        heads = x.shape[-1] // self.depth
        allowed = torch.ones(x.shape[0], heads, x.shape[1], x.shape[1], dtype=torch.bool)
        if mask is not None:
            allowed = allowed & mask
        outs, tables = [], []
        parts = (W(x).split(self.depth, dim=-1) for W in (self.W_q, self.W_k, self.W_v))
        for head, (q, k, v) in enumerate(zip(*parts)):
            scores = torch.bmm(q, k.mT) / self.depth**0.5
            weights = torch.softmax(scores.masked_fill(~allowed[:, head], float("-inf")), -1)
            tables.append(weights)
            outs.append(torch.bmm(weights, v))
        out = self.W_o(torch.cat(outs, -1))
        return (out, torch.stack(tables, 1)) if return_weights else out
