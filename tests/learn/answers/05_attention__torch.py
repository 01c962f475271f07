"""A right answer in another style: torch."""

import torch


def attention(query, key, value):
    q, k, v = map(torch.from_numpy, (query.copy(), key.copy(), value.copy()))
    weights = torch.softmax(q @ k.transpose(-2, -1) / q.size(-1) ** 0.5, dim=-1)
    return weights @ v, weights
