"""The number of the key head of each query head."""

import torch


def repeat_kv(k, g):
    return k[:, torch.arange(k.shape[1] * g) // g]
