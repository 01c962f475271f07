"""Pair by pair."""

import numpy as np


def mask(task, document, given):
    n = len(document)
    allowed = np.zeros((n, n), dtype=bool)
    for row in range(n):
        for key in range(n):
            if document[row] != document[key]:
                continue
            if task == "gaps" or key <= row or (task == "prefix" and given[key]):
                allowed[row, key] = True
    return allowed
