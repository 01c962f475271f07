"""The function of PyTorch with a mask of keys."""

from torch import nn
from torch.nn.functional import scaled_dot_product_attention


class Padded(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.W_q, self.W_k, self.W_v = (nn.Linear(width, width, bias=False) for _ in range(3))

    def forward(self, x, real=None):
        mask = None if real is None else real[:, None, :].expand(-1, x.shape[1], -1)
        return scaled_dot_product_attention(self.W_q(x), self.W_k(x), self.W_v(x), attn_mask=mask)
