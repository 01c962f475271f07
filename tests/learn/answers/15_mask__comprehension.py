"""A list of lists."""

import numpy as np


def mask(task, document, given):
    n = len(document)
    reads = {"next": lambda i, j: j <= i, "gaps": lambda i, j: True, "prefix": lambda i, j: j <= i or bool(given[j])}[
        task
    ]
    rows = [[bool(document[i] == document[j]) and reads(i, j) for j in range(n)] for i in range(n)]
    return np.array(rows, dtype=bool).reshape(n, n)
