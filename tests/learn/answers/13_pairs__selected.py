"""Only the distances that occur, and a float."""

import numpy as np


def pairs(behind, tokens):
    behind = np.asarray(behind)[np.asarray(behind) < tokens]
    return float(tokens * len(behind) - behind.sum())
