import math

import numpy as np


def measure(weights):
    result = []
    for head in weights:
        n = len(head)
        previous = itself = first = entropy = 0.0
        for query, row in enumerate(head):
            if query > 0:
                previous += row[query - 1] / (n - 1)
            itself += row[query] / n
            first += row[0] / n
            entropy -= sum(p * math.log(p) for p in row if p > 0) / n
        result.append([previous, itself, first, entropy])
    return np.array(result)
