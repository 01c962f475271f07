import math

import numpy as np


def softmax(row):
    largest = max(row)
    if largest == -math.inf:
        return [0.0] * len(row)
    exps = [math.exp(score - largest) for score in row]
    return [each / sum(exps) for each in exps]


def forbid(scores, query, key):
    result = []
    for head in scores.tolist():
        head[query][key] = -math.inf
        result.append([softmax(row) for row in head])
    return np.array(result)
