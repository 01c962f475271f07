"""Root-mean-square normalisation of short rows, in the dtype of the rows."""

from __future__ import annotations

import torch
from torch.nn.functional import rms_norm

__all__ = ["RMSNorm"]


class RMSNorm(torch.nn.RMSNorm):
    """x / √(mean x² + eps) · weight, as torch has it; x may be in 16 bits (autocast) where the weight is not.

    Source: Zhang and Sennrich 2019.

    >>> RMSNorm(2, eps=0.0)(torch.tensor([3.0, 4.0], dtype=torch.bfloat16)).dtype
    torch.bfloat16
    """

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return rms_norm(x, tuple(self.normalized_shape), self.weight.to(x.dtype), self.eps)
