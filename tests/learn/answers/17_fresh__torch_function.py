"""The function of PyTorch."""

from torch import nn
from torch.nn.functional import scaled_dot_product_attention


class SelfAttention(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.W_q = nn.Linear(width, width, bias=False)
        self.W_k = nn.Linear(width, width, bias=False)
        self.W_v = nn.Linear(width, width, bias=False)

    def forward(self, x):
        return scaled_dot_product_attention(self.W_q(x), self.W_k(x), self.W_v(x))
