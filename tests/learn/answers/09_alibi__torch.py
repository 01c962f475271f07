"""torch."""

import torch


def alibi(h):
    return torch.exp2(-(torch.arange(h, dtype=torch.float64) + 1) * 8.0 / h)
