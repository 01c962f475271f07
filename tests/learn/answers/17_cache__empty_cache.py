"""Without a cache one begins with an empty one."""

import torch
from torch import nn


class Cached(nn.Module):
    def __init__(self, width, places):
        super().__init__()
        self.place = nn.Embedding(places, width)
        self.W_q, self.W_k, self.W_v = (nn.Linear(width, width, bias=False) for _ in range(3))

    def forward(self, x, cache=None):
        if cache is None:
            cache = (x[:, :0], x[:, :0])
        first, rows = cache[0].shape[1], x.shape[1]
        x = x + self.place.weight[first : first + rows]
        k, v = torch.cat([cache[0], self.W_k(x)], 1), torch.cat([cache[1], self.W_v(x)], 1)
        hidden = torch.arange(first + rows) > torch.arange(first, first + rows)[:, None]
        scores = self.W_q(x) @ k.mT / x.shape[-1] ** 0.5
        return scores.masked_fill(hidden, -torch.inf).softmax(-1) @ v, (k, v)
