"""A right answer in another style: torch."""

import torch


def scores(q, k):
    q, k = torch.from_numpy(q.copy()), torch.from_numpy(k.copy())
    return (torch.matmul(q, k.T) / q.size(-1) ** 0.5).numpy()
