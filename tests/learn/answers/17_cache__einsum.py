"""einsum, and a mask of numbers that is added."""

import torch
from torch import nn


class Cached(nn.Module):
    def __init__(self, width, places):
        super().__init__()
        self.place = nn.Embedding(places, width)
        self.W_q, self.W_k, self.W_v = (nn.Linear(width, width, bias=False) for _ in range(3))

    def forward(self, x, cache=None):
        start = len(cache[0][0]) if cache else 0
        rows = x.shape[1]
        x = x + self.place(torch.arange(rows) + start)
        new = [self.W_k(x), self.W_v(x)]
        k, v = [torch.cat(pair, 1) for pair in zip(cache, new)] if cache else new
        added = torch.full((rows, start + rows), -torch.inf).triu(start + 1)
        scores = torch.einsum("bid,bjd->bij", self.W_q(x), k) / x.shape[-1] ** 0.5 + added
        return torch.einsum("bij,bjd->bid", scores.softmax(-1), v), (k, v)
