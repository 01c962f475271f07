"""Number by number, over lists."""

import numpy as np


def softmax_backward(weights, dweights):
    if weights.ndim > 1:
        return np.array([softmax_backward(w, d) for w, d in zip(weights, dweights)])
    result = []
    for j in range(len(weights)):
        total = 0.0
        for i in range(len(weights)):
            total += dweights[i] * weights[i] * ((i == j) - weights[j])
        result.append(total)
    return np.array(result)
