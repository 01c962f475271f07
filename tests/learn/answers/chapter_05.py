"""Right answers to the exercises of chapter 5."""

import unittest

import numpy as np
import torch

from regard.engines.reference import scalar


def scalars__matmul(weights, V):
    return scalar.matmul(weights, V)


def four_steps__library_sum(Q, K, V, D, causal):
    table = scalar.attention_scores(Q, K, scale=D**-0.5)
    if causal:
        table = scalar.add(table, scalar.causal_mask(len(Q), len(K)))
    return scalar.apply_attention(list(map(scalar.softmax, table)), V)


def attend__list_of_rows(q, k, v):
    return [np.exp(row - np.logaddexp.reduce(row)) @ v for row in q @ k.T / np.sqrt(q.shape[1])]


def attention__torch(query, key, value):
    q, k, v = map(torch.from_numpy, (query.copy(), key.copy(), value.copy()))
    weights = torch.softmax(q @ k.transpose(-2, -1) / q.size(-1) ** 0.5, dim=-1)
    return weights @ v, weights


def tests__law_and_unittest():
    """The formula, and large numbers, with an assertion of unittest."""

    def test_formula(attend):
        q, k, v = np.random.default_rng(5).normal(size=(3, 3, 4))
        q, v = q[:2], v[:, :2]
        powers = np.exp(q @ k.T / 2)
        assert np.allclose(attend(q, k, v), powers @ v / powers.sum(1, keepdims=True))

    def test_large_numbers(attend):
        out = attend(np.array([[1e4], [-1e4]]), np.ones((2, 1)), np.array([[1.0], [3.0]]))
        unittest.TestCase().assertTrue(np.allclose(out, 2))
