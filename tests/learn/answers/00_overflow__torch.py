"""Bisection with torch, a fixed number of steps, and a list of the two ends."""

import torch


def overflow(dtype):
    ends = [torch.zeros((), dtype=torch.float64), torch.full((), 1000.0, dtype=torch.float64)]
    for _ in range(60):
        mid = sum(ends) / 2
        too_large = torch.isinf(torch.exp(mid.to(getattr(torch, dtype))))
        ends[int(too_large)] = mid
    return ends[0]
