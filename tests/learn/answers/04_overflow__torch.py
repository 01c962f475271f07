"""A right answer in another style: torch."""

import torch


def overflow(dtype):
    kind = {"float16": torch.float16, "float32": torch.float32, "float64": torch.float64}[dtype]
    low, high = 0.0, 1000.0
    while high - low > 1e-4:
        middle = (low + high) / 2
        finite = torch.isfinite(torch.exp(torch.tensor(middle, dtype=kind))).item()
        low, high = (middle, high) if finite else (low, middle)
    return low
