"""Angles by exp and log, as many programs write them; sine and cosine by a stack."""

import numpy as np


def sinusoids(count, width):
    theta = np.exp(-np.log(10000.0) * np.arange(0, width, 2) / width)
    angles = np.outer(np.arange(count), theta)
    return np.stack((np.sin(angles), np.cos(angles)), axis=2).reshape(count, width)
