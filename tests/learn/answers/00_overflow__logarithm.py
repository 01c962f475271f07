"""The logarithm of the largest number."""

import math

import numpy as np


def overflow(dtype):
    return math.log(float(np.finfo(dtype).max))
