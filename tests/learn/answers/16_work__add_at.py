"""Adds at repeated indices."""

import numpy as np


def work(who, how_many, tokens):
    result = np.zeros(how_many)
    ends = (np.arange(len(who)) + 1) * tokens
    starts = ends - tokens
    np.add.at(result, who, (ends * (ends + 1) - starts * (starts + 1)) // 2)
    return result
