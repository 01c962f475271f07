"""Padding is hidden as a row, too, and weights that are not allowed are 0."""

import torch
from torch import nn


class Padded(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.W_q, self.W_k, self.W_v = (nn.Linear(width, width, bias=False) for _ in range(3))

    def forward(self, x, real=None):
        if real is None:
            real = torch.ones(x.shape[:2], dtype=torch.bool, device=x.device)
        allowed = real[:, :, None] & real[:, None, :]
        scores = self.W_q(x) @ self.W_k(x).mT * x.shape[-1] ** -0.5
        return scores.masked_fill(~allowed, -torch.inf).softmax(-1).masked_fill(~allowed, 0) @ self.W_v(x)
