"""With einsum, and the products taken first."""

import numpy as np


def softmax_backward(p, dp):
    g = p * dp
    return g - p * np.einsum("...j->...", g)[..., np.newaxis]
