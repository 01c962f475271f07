"""One head after another."""

import torch
from torch import nn


class CausalHeads(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.W_q, self.W_k, self.W_v, self.W_o = (nn.Linear(width, width, bias=False) for _ in range(4))

    def forward(self, x):
        outs = []
        for q, k, v in zip(*(W(x).chunk(self.heads, -1) for W in (self.W_q, self.W_k, self.W_v))):
            scores = q @ k.transpose(1, 2) / q.shape[-1] ** 0.5
            hidden = torch.arange(x.shape[1]) > torch.arange(x.shape[1])[:, None]
            outs.append(scores.masked_fill(hidden, float("-inf")).softmax(-1) @ v)
        return self.W_o(torch.cat(outs, -1))
