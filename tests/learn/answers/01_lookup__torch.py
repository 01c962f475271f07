"""torch.softmax."""

import torch


def lookup(query, keys, values, sharpness):
    q, k, v = (torch.as_tensor(each.copy()) for each in (query, keys, values))
    return torch.softmax(sharpness * (k @ q), dim=0) @ v
