"""Right answers to the exercises of chapter 1."""

import math

import numpy as np
import torch


class Dictionary:
    def __init__(self, keys, values):
        self.keys, self.values = keys, values

    def __call__(self, query, sharpness):
        scores = np.array([sharpness * np.dot(key, query) for key in self.keys])
        return np.exp(scores - np.logaddexp.reduce(scores)) @ self.values


def lookup__logsumexp(query, keys, values, sharpness):
    """Weights as exp(score − log of the sum)."""
    return Dictionary(keys, values)(query, sharpness)


def lookup__loops(query, keys, values, sharpness):
    """Plain Python: loops over lists, math.exp."""
    scores = []
    for key in keys:
        score = 0.0
        for a, b in zip(query, key):
            score += a * b
        scores.append(sharpness * score)
    top = max(scores)
    weights = [math.exp(score - top) for score in scores]
    total = sum(weights)
    return [sum(w * row[column] for w, row in zip(weights, values)) / total for column in range(len(values[0]))]


def lookup__streaming(query, keys, values, sharpness):
    """One entry after another, with the largest score so far."""
    top, total, blend = -np.inf, 0.0, np.zeros(values.shape[1])
    for key, value in zip(keys, values):
        score = sharpness * np.sum(key * query)
        new = max(top, score)
        old, weight = np.exp(top - new), np.exp(score - new)
        total, blend, top = total * old + weight, blend * old + weight * value, new
    return blend / total


def lookup__torch(query, keys, values, sharpness):
    """torch.softmax."""
    q, k, v = (torch.as_tensor(each.copy()) for each in (query, keys, values))
    return torch.softmax(sharpness * (k @ q), dim=0) @ v


def twins__lists(n):
    """Lists of Python: the last entry becomes the first."""
    keys = [[1 if row == column else 0 for column in range(n)] for row in range(n)]
    first = [[row + 1] * n for row in range(n)]
    return keys, first, first[-1:] + first[:-1]


def twins__random(n):
    """Random keys and contents; two rows change places."""
    rng = np.random.default_rng()
    keys, first = rng.normal(size=(n, n)), rng.normal(size=(n, n))
    second = first.copy()
    second[[0, 1]] = second[[1, 0]]
    return keys, first, second


def rows(n, k):
    return [] if k == 0 else [*rows(n, k - 1), [float(k)] + [0.0] * (n - 1)]


def twins__recursion(n):
    """Rows are made by a function that calls itself; large keys, small contents."""
    contents = np.array(rows(n, n))
    return 3 * np.eye(n)[::-1], contents, np.flip(contents, axis=0)


def twins__torch(n):
    """torch, and a permutation."""
    contents = torch.randn(n, n, generator=torch.Generator().manual_seed(n))
    return torch.eye(n), contents, contents[(torch.arange(n) + 1) % n]
