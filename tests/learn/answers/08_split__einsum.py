"""einsum as a change of axes."""

import torch


def split(x, h):
    return torch.einsum("bnhd->bhnd", x.reshape(*x.shape[:2], h, x.shape[2] // h)).contiguous()
