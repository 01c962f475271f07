"""With a function for the logarithm of the softmax."""

import numpy as np


def log_softmax(x):
    x = x - np.max(x, axis=-1, keepdims=True)
    return x - np.log(np.sum(np.exp(x), axis=-1, keepdims=True))


def loss(logits, tokens, padding):
    vocabulary = logits.shape[-1]
    logs = log_softmax(logits[:, :-1]).reshape(-1, vocabulary)
    wanted = tokens[:, 1:].reshape(-1)
    rows = np.nonzero(wanted != padding)[0]
    if len(rows) == 0:
        return 0.0
    return -np.mean(logs[rows, wanted[rows]])
