"""Empty rows are set to 0 at the end; before, they may attend to everything."""

import torch
from torch import nn


class Masked(nn.Module):
    def forward(self, q, k, v, mask=None):
        scores = q @ k.transpose(1, 2) / q.shape[-1] ** 0.5
        if mask is None:
            return torch.softmax(scores, -1) @ v
        empty = ~mask.any(-1, keepdim=True)
        out = scores.masked_fill(~(mask | empty), -torch.inf).softmax(-1) @ v
        return out.masked_fill(empty, 0)
