"""One token after another: then no mask is needed."""

import torch
from torch import nn


class Cached(nn.Module):
    def __init__(self, width, places):
        super().__init__()
        self.place = nn.Embedding(places, width)
        self.W_q, self.W_k, self.W_v = (nn.Linear(width, width, bias=False) for _ in range(3))

    def forward(self, x, cache=None):
        k, v = (None, None) if cache is None else cache
        outs = []
        for token in x.split(1, 1):
            position = 0 if k is None else k.shape[1]
            token = token + self.place(torch.tensor([position]))
            new = self.W_k(token), self.W_v(token)
            k, v = new if k is None else (torch.cat([k, new[0]], 1), torch.cat([v, new[1]], 1))
            scores = self.W_q(token) @ k.transpose(1, 2) / x.shape[-1] ** 0.5
            outs.append(scores.softmax(-1) @ v)
        return torch.cat(outs, 1), (k, v)
