"""Linear attention in PyTorch."""

import torch


def linear(q, k, v):
    q, k, v = (torch.as_tensor(each, dtype=torch.float64) for each in (q, k, v))
    fq, fk = torch.nn.functional.elu(q) + 1, torch.nn.functional.elu(k) + 1
    return fq @ (fk.T @ v) / (fq @ fk.sum(0)).unsqueeze(1)
