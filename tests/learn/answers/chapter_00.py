"""Right answers to the exercises of chapter 0."""

import math

import numpy as np
import torch


def overflow__logarithm(dtype):
    """The logarithm of the largest number."""
    return math.log(float(np.finfo(dtype).max))


def overflow__numbers_of_the_dtype(dtype):
    """Bisection in the dtype itself, until no number is between the two."""
    number = np.dtype(dtype).type
    good, bad = number(0), number(1000)
    while True:
        half = good / number(2) + bad / number(2)
        if half in (good, bad):
            return good
        with np.errstate(over="ignore"):
            if np.isinf(np.exp(half)):
                bad = half
            else:
                good = half


def overflow__recursion(dtype, low=0.0, high=1000.0):
    """Bisection that calls itself."""
    if high - low < 0.001:
        return (low + high) / 2
    middle = (low + high) / 2
    finite = np.exp(np.array(middle, dtype)) < np.inf
    return overflow__recursion(dtype, middle, high) if finite else overflow__recursion(dtype, low, middle)


def overflow__torch(dtype):
    """Bisection with torch, a fixed number of steps, and a list of the two ends."""
    ends = [torch.zeros((), dtype=torch.float64), torch.full((), 1000.0, dtype=torch.float64)]
    for _ in range(60):
        mid = sum(ends) / 2
        too_large = torch.isinf(torch.exp(mid.to(getattr(torch, dtype))))
        ends[int(too_large)] = mid
    return ends[0]
