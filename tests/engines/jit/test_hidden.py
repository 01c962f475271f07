"""Biases of −infinity: the plan leaves out their tiles, and nothing changes in the results."""

import functools

import numpy as np
import pytest

import regard as rg
from regard.engines import plan as planning
from regard.engines.jit.tiling import PLAN_KEYS, as_planned, visited
from regard.language.expr import frozen_table
from regard.language.problem import Problem
from tests.engines.jit.usual import same_results
from tests.support.engines import dtypes_in_ci, normal, qkv
from tests.support.lanes import by_name

Q, K = 200, 230
LATER = np.arange(K) > np.arange(Q)[:, None]
# Which pairs are hidden, (1 or heads, rows, keys).
HIDDEN = {
    "causal": LATER[None],
    "each head": np.stack([LATER, ~LATER]),
    "everything": np.ones((1, Q, K), bool),
    "random": np.random.default_rng(0).random((1, Q, K)) < 0.7,
}
BIAS = np.where(LATER, -np.inf, 0).astype(np.float32)


call = functools.partial(qkv, B=1, Q=Q, K=K)


@pytest.mark.spread
@dtypes_in_ci
@by_name("hidden", HIDDEN)
@by_name("near", {"all keys": rg.everything(), "a window": rg.window(50)})
def test_a_bias_of_minus_infinity_has_the_bits_of_a_mask(near, hidden, dtype):
    """Forward and backward; next to other numbers, and to a mask."""
    arrays, numbers = call(dtype=dtype), normal(*hidden.shape, seed=3)
    dout = normal(*arrays[0].shape, seed=9, dtype=dtype)
    results = []
    for score, mask in (
        (np.where(hidden, -np.inf, numbers).astype(np.float32), near),
        (numbers, near & rg.dense(~hidden, query_start=0)),
    ):
        rules = {"score": score, "mask": mask, "query_start": 0, "engine": "jit"}
        slopes = rg.attention_backward(dout, *arrays, **rules)
        results.append((rg.attention(*arrays, **rules), *slopes[:3]))
    same_results(*results)


def test_hidden_tiles_are_not_visited():
    """About half of the pairs of a causal bias; all of a dense one."""
    causal, dense = (
        visited(planning.plan(as_planned(Problem.of(*call(), score=bias, query_start=0)), 16, PLAN_KEYS))
        for bias in (BIAS, np.zeros_like(BIAS))
    )
    assert 0.4 < causal / dense < 0.6


@pytest.mark.spread
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("which", [0, 1], ids=["q", "k"])
def test_products_that_are_not_finite_reach_every_row_that_the_law_says(bad, which):
    """NaN − ∞ is NaN: such a call visits all tiles, also after a call of the same kind that did not."""
    for value in (1.0, bad):
        arrays = call()
        arrays[which][0, 0, -1] = value
        found, wanted = (rg.attention(*arrays, score=BIAS, query_start=0, engine=name) for name in ("jit", "reference"))
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


def test_frozen_arrays_are_planned_as_they_are():
    """Their plan is kept for calls whose products may not be finite."""
    frozen, read = (
        as_planned(Problem.of(*call(), score=rg.score + kind(BIAS, "bias")[rg.query, rg.key], query_start=0)).mask
        for kind in (frozen_table, rg.table)
    )
    assert frozen is None and read is not None
