"""The mode decides which weights are used."""

from torch import nn
from torch.nn import functional as F


class Dropped(nn.Module):
    def __init__(self, width, p):
        super().__init__()
        self.p = p
        self.W_q, self.W_k, self.W_v = (nn.Linear(width, width, bias=False) for _ in range(3))

    def forward(self, x):
        scores = self.W_q(x) @ self.W_k(x).transpose(-2, -1) / x.shape[-1] ** 0.5
        weights = scores.softmax(-1)
        used = F.dropout(weights, self.p) if self.training else weights
        return used @ self.W_v(x), weights
