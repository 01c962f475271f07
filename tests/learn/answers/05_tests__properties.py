"""A right answer in another style: properties."""

import numpy as np

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
