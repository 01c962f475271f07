"""One working copy, whose number is put back after each step; with nditer."""

import numpy as np


def numerical(f, x, h=1e-5):
    work = np.array(x, dtype=np.float64)
    out = np.empty_like(work)
    numbers = np.nditer(x, flags=["multi_index", "zerosize_ok"])
    for number in numbers:
        at = numbers.multi_index
        work[at] = number + h
        out[at] = f(work)
        work[at] = number - h
        out[at] -= f(work)
        work[at] = number
    return out / (2 * h)
