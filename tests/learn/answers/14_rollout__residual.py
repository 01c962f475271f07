"""Half of the shares stay, and half are read by the heads."""

import numpy as np


def rollout(weights):
    shares = np.eye(weights.shape[-1], dtype=np.float32)
    for layer in weights.astype(np.float32):
        shares = shares / 2 + layer.mean(axis=0) @ shares / 2
    return shares
