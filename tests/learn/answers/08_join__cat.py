"""The heads, concatenated."""

import torch


def join(x):
    return torch.cat([x[:, head] for head in range(x.shape[1])], dim=-1)
