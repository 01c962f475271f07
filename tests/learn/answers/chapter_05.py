"""Right answers to the exercises of chapter 5."""

import math
import unittest
from functools import partial

import numpy as np
import torch
from torch.nn.functional import scaled_dot_product_attention

from regard.engines.reference import scalar


def scalars__loops(weights, V):
    out = []
    for row in weights:
        total = [scalar.Value(0.0) for _ in V[0]]
        for weight, value in zip(row, V):
            total = [t + weight * x for t, x in zip(total, value)]
        out.append(total)
    return out


def scalars__map(weights, V):
    columns = list(map(list, zip(*V)))
    return [list(map(partial(scalar.dot, row), columns)) for row in weights]


def scalars__matmul(weights, V):
    return scalar.matmul(weights, V)


def scalars__sums(weights, V):
    return [[sum(w * V[j][c] for j, w in enumerate(row)) for c in range(len(V[0]))] for row in weights]


def attention_scores(Q, K, D):
    return [[sum(a * b for a, b in zip(q, k)) / math.sqrt(D) for k in K] for q in Q]


def add_mask(scores):
    return [[s if j <= i else s + -math.inf for j, s in enumerate(row)] for i, row in enumerate(scores)]


def softmax(row):
    top = max(x.data for x in row)
    powers = [(x - top).exp() for x in row]
    return [p / sum(powers) for p in powers]


def apply_attention(weights, V):
    return [[sum(w * v[c] for w, v in zip(row, V)) for c in range(len(V[0]))] for row in weights]


def four_steps__by_hand(Q, K, V, D, causal):
    scores = attention_scores(Q, K, D)
    if causal:
        scores = add_mask(scores)
    return apply_attention([softmax(row) for row in scores], V)


class Attention:
    def __init__(self, causal):
        self.causal = causal

    def hidden(self, i, j):
        return float("-inf") if self.causal and j > i else 0.0

    def __call__(self, Q, K, V):
        scores = scalar.attention_scores(Q, K)
        masked = [[s + self.hidden(i, j) for j, s in enumerate(row)] for i, row in enumerate(scores)]
        return scalar.apply_attention([scalar.softmax(row) for row in masked], V)


def four_steps__class(Q, K, V, D, causal=False):
    return Attention(causal)(Q, K, V)


def four_steps__library_sum(Q, K, V, D, causal):
    table = scalar.attention_scores(Q, K, scale=D**-0.5)
    if causal:
        table = scalar.add(table, scalar.causal_mask(len(Q), len(K)))
    return scalar.apply_attention(list(map(scalar.softmax, table)), V)


def four_steps__row_by_row(Q, K, V, D, causal):
    out = []
    for i, q in enumerate(Q):
        seen = i + 1 if causal else len(K)
        weights = scalar.softmax([scalar.dot(q, k) / D**0.5 for k in K[:seen]])
        out.append([scalar.dot(weights, column[:seen]) for column in zip(*V)])
    return out


def weights(scores):
    p = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return p / p.sum(axis=-1, keepdims=True)


def attend__comprehension(q, k, v):
    return [weights(k @ row / len(row) ** 0.5) @ v for row in q]


def attend__loops(q, k, v):
    out = np.zeros((len(q), v.shape[1]))
    for i in range(len(q)):
        scores = [sum(q[i, c] * k[j, c] for c in range(q.shape[1])) / math.sqrt(q.shape[1]) for j in range(len(k))]
        top = max(scores)
        powers = [math.exp(s - top) for s in scores]
        for j, power in enumerate(powers):
            out[i] += power / sum(powers) * v[j]
    return out


def attend__streaming(q, k, v):
    top = np.full((len(q), 1), -np.inf)
    total = np.zeros((len(q), 1))
    out = np.zeros((len(q), v.shape[1]))
    for key, value in zip(k, v):
        s = (q @ key)[:, None] / np.sqrt(len(key))
        new = np.maximum(top, s)
        total = total * np.exp(top - new) + np.exp(s - new)
        out = out * np.exp(top - new) + np.exp(s - new) * value
        top = new
    return out / total


def attend__torch(q, k, v):
    q, k, v = (torch.tensor(x)[None] for x in (q, k, v))
    return scaled_dot_product_attention(q, k, v)[0].numpy()


def attention__loop_over_batch(query, key, value):
    q, k, v = (x.reshape(-1, *x.shape[-2:]) for x in (query, key, value))
    outs, tables = [], []
    for one in range(len(q)):
        tables.append(weights(q[one] @ k[one].T / np.sqrt(q.shape[-1])))
        outs.append(tables[-1] @ v[one])
    lead = query.shape[:-2]
    return np.array(outs).reshape(*lead, *outs[0].shape), np.array(tables).reshape(*lead, *tables[0].shape)


def attention__moveaxis(query, key, value):
    d_k = key.shape[-1]
    w = weights(np.matmul(query, np.moveaxis(key, -1, -2)) * d_k**-0.5)
    return [np.matmul(w, value), w]


def attention__recursion(query, key, value):
    if query.ndim > 2:
        parts = [attention__recursion(*each) for each in zip(query, key, value)]
        return np.stack([out for out, _ in parts]), np.stack([w for _, w in parts])
    w = weights(query @ key.T / np.sqrt(query.shape[1]))
    return w @ value, w


def attention__torch(query, key, value):
    q, k, v = map(torch.from_numpy, (query.copy(), key.copy(), value.copy()))
    weights = torch.softmax(q @ k.transpose(-2, -1) / q.size(-1) ** 0.5, dim=-1)
    return weights @ v, weights


def tests__properties():
    """Properties of attention."""

    rng = np.random.default_rng(5)

    Q, K, V = rng.normal(size=(4, 3)), rng.normal(size=(6, 3)), rng.normal(size=(6, 2))

    def test_one_hot_values_give_softmax(attend):
        weights = attend(Q, K, np.eye(6))
        ratio = np.log(weights) - np.log(weights[:, :1])
        scores = Q @ K.T / np.sqrt(3)
        assert np.allclose(ratio, scores - scores[:, :1])
        assert np.allclose(weights.sum(1), 1)

    def test_linear_in_values(attend):
        assert np.allclose(attend(Q, K, V), attend(Q, K, np.eye(6)) @ V)

    def test_order_of_keys(attend):
        order = rng.permutation(6)
        assert np.allclose(attend(Q, K[order], V[order]), attend(Q, K, V))

    def test_rows_alone(attend):
        for row in range(4):
            assert np.allclose(attend(Q[row : row + 1], K, V), attend(Q, K, V)[row : row + 1])

    def test_large(attend):
        assert np.isfinite(attend(1e4 * Q, 1e2 * K, V)).all()
        q = np.array([[1.0], [-1.0]]) * 1e4
        assert np.isfinite(attend(q, np.ones((2, 1)), np.ones((2, 1)))).all()


def tests__unittest():
    """Numbers computed by hand, with the assertions of unittest."""

    class Case(unittest.TestCase):
        def runTest(self):
            pass

    def test_known_weights(attend):
        q, v = np.array([[2.0, 0, 0, 0]]), np.array([[3.0, 0], [0, 6]])
        k = np.array([[np.log(2), 0, 0, 0], [0, 1, 0, 0]])
        Case().assertTrue(np.allclose(attend(q, k, v), [[2, 2]]))

    def test_square(attend):
        q, k, v = np.diag([2.0, 0, 0, 0]), np.diag([np.log(3), 0, 0, 0]), np.arange(16.0).reshape(4, 4)
        expected = np.ones((4, 1)) * v.mean(0)
        expected[0] = (3 * v[0] + v[1] + v[2] + v[3]) / 6
        Case().assertTrue(np.allclose(attend(q, k, v), expected))

    def test_extreme(attend):
        q = np.array([[1e4], [-1e4]])
        Case().assertTrue(np.allclose(attend(q, np.array([[1.0], [1.0]]), np.array([[1.0], [3.0]])), 2))
