"""Biases of −infinity: the plan leaves out their tiles, and nothing changes in the results."""

import numpy as np
import pytest

import regard as rg
from regard.engines import plan as planning
from regard.engines.jit.tiling import PLAN_KEYS, as_planned, visited
from regard.language.expr import frozen_table
from regard.language.problem import Problem
from tests.support.engines import DTYPES_IN_CI, normal, same_bits

SIZES = (1, 2, 200, 230)  # batch entries, heads, rows, keys


def call(dtype, seed=0):
    B, H, Q, K = SIZES
    return tuple(normal(B, H, rows, 16, seed=seed + n).astype(dtype) for n, rows in enumerate((Q, K, K)))


def hidden(kind, rng):
    """Which pairs are hidden, (1 or heads, rows, keys)."""
    Q, K = SIZES[2:]
    later = np.arange(K) > np.arange(Q)[:, None]
    return {
        "causal": later[None],
        "each head": np.stack([later, ~later]),
        "everything": np.ones((1, Q, K), bool),
        "random": rng.random((1, Q, K)) < 0.7,
    }[kind]


@pytest.mark.spread
@pytest.mark.parametrize("dtype", DTYPES_IN_CI)
@pytest.mark.parametrize("kind", ["causal", "each head", "everything", "random"])
def test_a_bias_of_minus_infinity_has_the_bits_of_a_mask(kind, dtype):
    """Forward and backward; next to other numbers, and to a mask."""
    rng = np.random.default_rng(0)
    q, k, v = call(dtype)
    removed = hidden(kind, rng)
    numbers = normal(*removed.shape, seed=3)
    bias = np.where(removed, -np.inf, numbers).astype(np.float32)
    dout = normal(*q.shape, seed=9).astype(dtype)
    for mask in (None, rg.window(50)):
        plain = {"score": rg.bias(numbers, query_start=0), "mask": rg.dense(~removed, query_start=0)}
        plain["mask"] = plain["mask"] if mask is None else plain["mask"] & mask
        added = {"score": rg.bias(bias, query_start=0), "mask": mask}
        results = [
            (
                rg.attention(q, k, v, query_start=0, engine="jit", **each),
                *rg.attention_backward(dout, q, k, v, query_start=0, engine="jit", **each)[:3],
            )
            for each in (added, plain)
        ]
        for found, wanted in zip(*results, strict=True):
            same_bits(found, wanted)


def test_hidden_tiles_are_not_visited():
    """About half of the pairs of a causal bias; all of a dense one."""
    rng = np.random.default_rng(0)
    q, k, v = call(np.float32)
    counts = {}
    for name, removed in (("causal", hidden("causal", rng)), ("dense", np.zeros((1, *SIZES[2:]), bool))):
        bias = np.where(removed, -np.inf, 0).astype(np.float32)
        problem = Problem.of(q, k, v, score=bias, query_start=0)
        counts[name] = visited(planning.plan(as_planned(problem), 16, PLAN_KEYS))

    assert 0.4 < counts["causal"] / counts["dense"] < 0.6


@pytest.mark.spread
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("which", ["q", "k"])
def test_products_that_are_not_finite_reach_every_row_that_the_law_says(bad, which):
    """NaN − ∞ is NaN: such a call visits all tiles, also after a call of the same kind that did not."""
    q, k, v = call(np.float32)
    bias = np.where(hidden("causal", np.random.default_rng(0)), -np.inf, 0).astype(np.float32)
    for value in (1.0, bad):
        given = {"q": q.copy(), "k": k.copy()}
        given[which][0, 0, -1] = value
        if value == 1e30:
            given["q" if which == "k" else "k"][0, 0] *= 1e10
        found, wanted = (
            rg.attention(given["q"], given["k"], v, score=bias, query_start=0, engine=engine)
            for engine in ("jit", "reference")
        )
        np.testing.assert_array_equal(np.isnan(found), np.isnan(wanted))
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


def test_frozen_arrays_are_planned_as_they_are():
    """Their plan is kept for calls whose products may not be finite."""
    bias = np.where(hidden("causal", np.random.default_rng(0))[0], -np.inf, 0).astype(np.float32)
    index = rg.query, rg.key
    read = {kind: kind(bias, "bias")[index] for kind in (frozen_table, rg.table)}
    masks = {
        kind: as_planned(Problem.of(*call(np.float32), score=rg.score + each, query_start=0)).mask
        for kind, each in read.items()
    }
    assert masks[frozen_table] is None and masks[rg.table] is not None
