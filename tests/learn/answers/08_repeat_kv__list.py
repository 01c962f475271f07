"""A list of heads."""

import torch


def repeat_kv(keys, times):
    return torch.stack([head for head in keys.unbind(1) for _ in range(times)], 1)
