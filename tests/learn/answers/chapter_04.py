"""Right answers to the exercises of chapter 4."""

import numpy as np


def scalars__log_sum_exp(row):
    top = max(row, key=lambda x: x.data).data
    lse = sum((x - top).exp() for x in row).log() + top
    return [(x - lse).exp() for x in row]


def softmax__log_sum_exp(scores):
    return np.exp(scores - np.logaddexp.reduce(scores, axis=-1, keepdims=True))
