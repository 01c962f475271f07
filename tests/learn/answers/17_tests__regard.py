"""regard's own attention as the reference."""

import numpy as np

import regard as rg


def expected(q, k, v, mask=None, causal=False, scale=None):
    if causal:
        rows, keys = len(q), len(k)
        below = np.tril(np.ones((rows, keys), bool), keys - rows)
        mask = below if mask is None else mask & below
    four = (each[None, None] for each in (q, k, v))
    return rg.attention(*four, mask=None if mask is None else mask[None, None], scale=scale)[0, 0]


def test_random_calls(attention):
    for seed in range(8):
        rng = np.random.default_rng(seed)
        rows, keys, depth, width = rng.integers(1, 7, 4) if seed % 2 else (4, 4, 4, 4)
        q, k, v = (rng.standard_normal(shape) for shape in ((rows, depth), (keys, depth), (keys, width)))
        mask = rng.random((rows, keys)) < 0.5
        for named in (
            {},
            {"mask": mask},
            {"causal": True},
            {"mask": mask, "causal": True},
            {"scale": 0.7},
            {"scale": 0.0},
        ):
            assert np.allclose(attention(q, k, v, **named), expected(q, k, v, **named))


def test_large_numbers(attention):
    q, k, v = 100 * np.random.default_rng(0).standard_normal((3, 4, 4))
    assert np.allclose(attention(q, k, v), expected(q, k, v))


def test_nan(attention):
    q, k, v = np.random.default_rng(0).standard_normal((3, 3, 2))
    clean = attention(q, k, v, causal=True)
    v[2] = np.nan
    assert np.allclose(attention(q, k, v, causal=True)[:2], clean[:2])
