"""Exponents that are evenly spaced, from −8/h to −8."""

import numpy as np


def alibi(h):
    return np.logspace(-8 / h, -8, num=h, base=2)
