"""torch in float64."""

import torch


def sinusoids(n, d):
    exponents = torch.arange(0, d, 2, dtype=torch.float64) / d
    angles = torch.arange(n, dtype=torch.float64)[:, None] / 10000**exponents
    pe = torch.zeros(n, d, dtype=torch.float64)
    pe[:, 0::2], pe[:, 1::2] = angles.sin(), angles.cos()
    return pe
