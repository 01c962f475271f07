"""torch in float64."""

import torch


def rotate(x, positions):
    x, positions = torch.tensor(x), torch.tensor(positions)
    a, b = x.chunk(2, dim=-1)
    theta = 10000 ** (-torch.arange(a.shape[-1], dtype=torch.float64) / a.shape[-1])
    t = positions.unsqueeze(-1) * theta
    return torch.cat([a * t.cos() - b * t.sin(), a * t.sin() + b * t.cos()], dim=-1)
