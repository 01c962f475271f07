"""Each pair as a length and an angle: the position is added to the angle."""

import numpy as np


class Rotary:
    def __init__(self, depth, base=10000.0):
        self.half = depth // 2
        self.theta = base ** -(np.arange(self.half) / self.half)

    def __call__(self, x, positions):
        a, b = x[..., : self.half], x[..., self.half :]
        length, angle = np.hypot(a, b), np.arctan2(b, a)
        angle = angle + np.multiply.outer(positions, self.theta)
        return np.concatenate([length * np.cos(angle), length * np.sin(angle)], -1)


def rotate(x, positions):
    return Rotary(x.shape[-1])(x, positions)
