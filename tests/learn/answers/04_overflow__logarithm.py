"""A right answer in another style: logarithm."""

import numpy as np


def overflow(dtype):
    return float(np.log(np.float64(np.finfo(dtype).max)))
