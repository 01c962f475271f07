"""One row at a time, with apply_along_axis on the two rows joined."""

import numpy as np


def softmax_backward(weights, dweights):
    keys = weights.shape[-1]

    def row(both):
        w, d = both[:keys], both[keys:]
        return w * (d - w.dot(d))

    return np.apply_along_axis(row, -1, np.concatenate([weights, dweights], axis=-1))
