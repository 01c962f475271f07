"""The function of PyTorch, on permuted axes."""

from torch import nn
from torch.nn.functional import scaled_dot_product_attention


class CausalHeads(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.W_q, self.W_k, self.W_v, self.W_o = (nn.Linear(width, width, bias=False) for _ in range(4))

    def forward(self, x):
        batch, n, width = x.shape
        parts = batch, n, self.heads, width // self.heads
        q, k, v = (W(x).reshape(parts).permute(0, 2, 1, 3) for W in (self.W_q, self.W_k, self.W_v))
        out = scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.W_o(out.permute(0, 2, 1, 3).reshape(batch, n, width))
