"""Causal linear attention in PyTorch."""

import torch


def feature(x):
    return torch.nn.functional.elu(x) + 1


def causal_linear(q, k, v, S, z):
    q, k, v, S, z = (torch.as_tensor(each, dtype=torch.float64) for each in (q, k, v, S, z))
    out = torch.zeros(len(q), v.shape[1], dtype=torch.float64)
    for i in range(len(q)):
        S = S + torch.outer(feature(k[i]), v[i])
        z = z + feature(k[i])
        out[i] = feature(q[i]) @ S / (feature(q[i]) @ z)
    return out, S, z
