"""Small numbers that one can compute, and properties."""

import numpy as np

LOG3 = np.log(3.0)


def test_the_scale(attention):
    q, k, v = np.array([[2 * LOG3, 0, 0, 0]]), np.array([[1.0, 0, 0, 0], [0, 0, 0, 0]]), np.array([[1.0], [5.0]])
    assert np.allclose(attention(q, k, v), [[2.0]])  # score log 3: weights 3/4 and 1/4
    assert np.allclose(attention(q, k, v, scale=0.5), [[2.0]])
    assert np.allclose(attention(q, k, v, scale=0), [[3.0]])
    assert np.allclose(attention(q, k, v, scale=0.25), [[(3**0.5 + 5) / (3**0.5 + 1)]])
    assert np.allclose(attention(q, k, v, scale=1.0), [[(9 * 1 + 5) / 10]])


def test_more_rows(attention):
    q, k, v = np.array([[LOG3], [0.0], [-LOG3]]), np.array([[1.0], [0.0]]), np.array([[1.0, 0], [5.0, 4]])
    assert np.allclose(attention(q, k, v), [[2, 1], [3, 2], [4, 3]])


def test_masks(attention):
    q, k, v = np.array([[LOG3], [-LOG3]]), np.array([[1.0], [0.0], [2.0]]), np.array([[1.0], [5.0], [100.0]])
    mask = np.array([[True, True, False], [False, False, False]])
    assert np.allclose(attention(q, k, v, mask), [[2], [0]])
    assert np.allclose(attention(q, k, v, np.array([[True, False, False], [False, False, True]])), [[1], [100]])
    assert np.allclose(attention(q, k, v, np.array([[True, True, True], [True, True, False]]), True), [[2], [4]])


def test_causal(attention):
    rng = np.random.default_rng(0)
    q, k, v = rng.standard_normal((2, 3)), rng.standard_normal((4, 3)), rng.standard_normal((4, 2))
    out = attention(q, k, v, causal=True)
    assert np.allclose(out[0], attention(q[:1], k[:3], v[:3])[0])
    assert np.allclose(out[1], attention(q[1:], k, v)[0])
    one = np.eye(3)
    assert np.allclose(attention(one, one, 3 * one, causal=True)[0], [3, 0, 0])


def test_nothing_leaks(attention):
    q, k, v = np.ones((2, 1)), np.ones((3, 1)), np.array([[1.0], [3.0], [np.nan]])
    assert attention(q, k, v, causal=True)[0] == 2


def test_forbidden_scores_are_large(attention):
    q, k, v = np.array([[1.0]]), np.array([[0.0], [1000.0]]), np.array([[1.0], [5.0]])
    assert attention(q, k, v, np.array([[True, False]])) == 1
    assert attention(q, k, v) == 5


def test_which_array_is_which(attention):
    q, k, v = np.random.default_rng(1).standard_normal((3, 3, 3))
    powers = np.exp(q @ k.T / 3**0.5)
    assert np.allclose(attention(q, k, v), powers @ v / powers.sum(1, keepdims=True))
