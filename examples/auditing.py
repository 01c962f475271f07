"""Audits an attention module: a correct one, one whose mask is off by one, and one without the scale.

python examples/auditing.py
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

import regard as rg


class Attention(nn.Module):
    """Causal self-attention with two heads; wrong values of `scale` and `shift` introduce the errors."""

    is_causal = True

    def __init__(self, scale: float | None = None, shift: int = 0):
        super().__init__()
        self.qkv, self.out = nn.Linear(32, 96, bias=False), nn.Linear(32, 32, bias=False)
        self.scale, self.shift = scale, shift

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        B, n, _ = x.shape
        q, k, v = self.qkv(x).view(B, n, 3, 2, 16).permute(2, 0, 3, 1, 4)
        mask = torch.ones(n, n, dtype=torch.bool).tril(self.shift)
        heads = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=self.scale)
        return self.out(heads.transpose(1, 2).reshape(B, n, 32))


for name, module in {
    "healthy": Attention(),
    "mask off by one": Attention(shift=1),
    "missing scale": Attention(scale=1.0),
}.items():
    torch.manual_seed(0)
    report = rg.audit(module.eval(), inputs=torch.randn(1, 24, 32), causal=True)
    print(f"— {name}: {'healthy' if report.healthy else 'not healthy'}")
    for finding in report.findings:
        print(finding, "\n")
