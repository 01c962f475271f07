"""Stacked copies, flattened."""

import torch


def repeat_kv(k, g):
    return torch.stack([k] * g, dim=2).flatten(start_dim=1, end_dim=2)
