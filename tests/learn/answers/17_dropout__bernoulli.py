"""A mask of 0 and 1 / (1 − p), which is all ones in evaluation mode."""

import torch
from torch import nn


class Dropped(nn.Module):
    def __init__(self, width, p):
        super().__init__()
        self.rate = p
        self.W_q, self.W_k, self.W_v = (nn.Linear(width, width, bias=False) for _ in range(3))

    def forward(self, x):
        scores = self.W_q(x) @ self.W_k(x).transpose(-2, -1) / x.shape[-1] ** 0.5
        weights = scores.softmax(-1)
        rate = self.rate * self.training
        mask = torch.full_like(weights, 1 - rate).bernoulli() / (1 - rate)
        return (weights * mask) @ self.W_v(x), weights
