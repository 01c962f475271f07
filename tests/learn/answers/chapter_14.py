"""Right answers to the exercises of chapter 14."""

import math
from functools import reduce

import numpy as np
import torch


def measure__einsum(w):
    n = w.shape[1]
    before = np.einsum("hii->h", w[:, 1:, :-1]) / max(n - 1, 1)
    same = np.einsum("hii->h", w) / n
    start = np.einsum("hi->h", w[:, :, 0]) / n
    logs = np.log(w, out=np.zeros_like(w), where=w > 0)
    return np.array([before, same, start, -np.einsum("hij,hij->h", w, logs) / n]).T


class Head:
    def __init__(self, weights):
        self.weights, self.n = weights, len(weights)

    def mass(self, offset):
        return np.trace(self.weights, offset) / max(self.n + offset, 1)

    def entropy(self):
        p = self.weights[self.weights > 0]
        return -(p * np.log(p)).sum() / self.n

    def four(self):
        return self.mass(-1), self.mass(0), self.weights[:, 0].sum() / self.n, self.entropy()


def measure__float32(weights):
    """Computed in numbers of 32 bits, head by head."""
    return np.array([Head(head).four() for head in weights.astype(np.float32)], np.float32)


def measure__loops(weights):
    result = []
    for head in weights:
        n = len(head)
        previous = itself = first = entropy = 0.0
        for query, row in enumerate(head):
            if query > 0:
                previous += row[query - 1] / (n - 1)
            itself += row[query] / n
            first += row[0] / n
            entropy -= sum(p * math.log(p) for p in row if p > 0) / n
        result.append([previous, itself, first, entropy])
    return np.array(result)


def measure__torch(weights):
    weights = torch.as_tensor(weights)
    n = weights.shape[-1]
    previous = weights.diagonal(-1, 1, 2).sum(1) / max(n - 1, 1)
    itself = weights.diagonal(0, 1, 2).mean(1)
    entropy = -torch.xlogy(weights, weights).sum(2).mean(1)
    return torch.stack([previous, itself, weights[..., 0].mean(1), entropy], dim=1).numpy()


def forbid__log_sum_exp(scores, query, key):
    s = np.array(scores)
    s[..., query, key] = -np.inf
    lse = np.logaddexp.reduce(s, axis=-1, keepdims=True)
    return np.exp(s - np.where(lse == -np.inf, 0, lse))


def softmax(row):
    largest = max(row)
    if largest == -math.inf:
        return [0.0] * len(row)
    exps = [math.exp(score - largest) for score in row]
    return [each / sum(exps) for each in exps]


def forbid__loops(scores, query, key):
    result = []
    for head in scores.tolist():
        head[query][key] = -math.inf
        result.append([softmax(row) for row in head])
    return np.array(result)


def forbid__torch(scores, query, key):
    changed = torch.tensor(scores)
    changed[:, query, key] = -torch.inf
    return changed.softmax(-1).nan_to_num(0).numpy()


def forbid__where(scores, query, key):
    n = scores.shape[-1]
    pair = np.zeros((n, n), bool)
    pair[query, key] = True
    masked = np.where(pair, -np.inf, scores)
    top = np.max(masked, axis=2, keepdims=True)
    top[np.isneginf(top)] = 0
    weights = np.exp(masked - top)
    return np.divide(weights, weights.sum(2, keepdims=True), out=np.zeros_like(weights), where=weights > 0)


def rollout__recursion(weights):
    if len(weights) == 0:
        return np.eye(weights.shape[-1])
    below = rollout__recursion(weights[:-1])
    return (np.mean(weights[-1], axis=0) @ below + below) / 2


def rollout__reduce(weights):
    mixed = 0.5 * weights.mean(axis=1) + 0.5 * np.eye(weights.shape[-1])
    return reduce(np.matmul, mixed[::-1])


def rollout__residual(weights):
    """Half of the shares stay, and half are read by the heads."""
    shares = np.eye(weights.shape[-1], dtype=np.float32)
    for layer in weights.astype(np.float32):
        shares = shares / 2 + layer.mean(axis=0) @ shares / 2
    return shares


def rollout__torch(weights):
    identity = torch.eye(weights.shape[-1], dtype=torch.float64)
    steps = [(torch.as_tensor(layer).mean(0) + identity) / 2 for layer in weights]
    result = identity
    for step in steps:
        result = torch.mm(step, result)
    return result.numpy()
