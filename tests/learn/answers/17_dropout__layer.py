"""nn.Dropout, made once."""

from torch import nn


class Dropped(nn.Module):
    def __init__(self, width, p):
        super().__init__()
        self.drop = nn.Dropout(p)
        self.W_q, self.W_k, self.W_v = (nn.Linear(width, width, bias=False) for _ in range(3))

    def forward(self, x):
        scores = self.W_q(x) @ self.W_k(x).transpose(-2, -1) / x.shape[-1] ** 0.5
        weights = scores.softmax(-1)
        return self.drop(weights) @ self.W_v(x), weights
