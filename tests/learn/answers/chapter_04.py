"""Right answers to the exercises of chapter 4."""

import math

import numpy as np
import torch

from regard.engines.reference import scalar


def scalars__library(row):
    return scalar.softmax(row)


def scalars__log_sum_exp(row):
    top = max(row, key=lambda x: x.data).data
    lse = sum((x - top).exp() for x in row).log() + top
    return [(x - lse).exp() for x in row]


def scalars__loops(row):
    top = row[0].data
    for x in row:
        if x.data > top:
            top = x.data
    powers = []
    total = 0.0
    for x in row:
        power = (x - top).exp()
        powers.append(power)
        total = total + power
    return [power / total for power in powers]


def scalars__maximum_as_value(row):
    top = sorted(row, key=lambda x: x.data)[-1]
    powers = [(x - top).exp() for x in row]
    inverse = 1 / sum(powers)
    return [power * inverse for power in powers]


def softmax__axis_argument(scores, axis=-1):
    z = scores.astype(np.float64)
    z -= z.max(axis=axis, keepdims=True)
    np.exp(z, out=z)
    z /= z.sum(axis=axis, keepdims=True)
    return z


def row_softmax(row):
    top = max(row)
    powers = [math.exp(x - top) for x in row]
    return [p / sum(powers) for p in powers]


def softmax__loops(scores):
    flat = scores.reshape(-1, scores.shape[-1])
    return np.array([row_softmax([float(x) for x in row]) for row in flat]).reshape(scores.shape)


def softmax__recursion(scores):
    if scores.ndim > 1:
        return np.stack([softmax__recursion(part) for part in scores])
    shifted = np.exp(scores - np.max(scores))
    return shifted / np.sum(shifted)


def softmax__torch(scores):
    return torch.softmax(torch.tensor(scores), dim=-1).numpy()
