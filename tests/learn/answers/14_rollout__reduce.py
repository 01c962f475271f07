from functools import reduce

import numpy as np


def rollout(weights):
    mixed = 0.5 * weights.mean(axis=1) + 0.5 * np.eye(weights.shape[-1])
    return reduce(np.matmul, mixed[::-1])
