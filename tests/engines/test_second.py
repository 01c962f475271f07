"""Second derivatives of the law are the slopes of its first ones."""

import functools

import numpy as np
import pytest

import regard as rg
from regard.engines.reference import attention as reference
from regard.engines.reference.second import second
from regard.language.problem import Problem, Tangents
from tests.support.engines import normal
from tests.support.lanes import by_name

SIZES = (2, 4, 5, 3), (2, 2, 7, 3), (2, 2, 7, 4)
RULES = {
    "dense": {},
    "causal": {"mask": rg.causal()},
    "softcap": {"score": rg.softcap(1.5)},
    "a curved score in a window": {"mask": rg.window(2), "score": rg.score**3 * 0.1 + rg.sin(rg.score)},
    "sinks": {"sinks": normal(4, seed=8)},
    "dropout": {"dropout": 0.3, "seed": 1},
}


@by_name("rules", RULES)
def test_second_derivatives_are_slopes_of_first_ones(rules):
    """Along q, k and v, of all that they are differentiated by: q, k, v, dout and dlse."""
    given = [normal(*size, seed=seed).astype(float) for seed, size in enumerate(SIZES)]
    along = [normal(*size, seed=seed + 3).astype(float) for seed, size in enumerate(SIZES)]
    given += [normal(2, 4, 5, 4, seed=6).astype(float), normal(2, 4, 5, seed=7).astype(float)]
    problem = functools.partial(Problem.of, **rules)
    found = second(problem(*given[:3]), Tangents(*along, {}, None), *given[3:])

    def changed(*arrays) -> float:
        slopes = reference.backward(problem(*arrays[:3]), *arrays[3:])
        return sum((slope * part).sum() for slope, part in zip(slopes[:3], along))

    for place, slopes in enumerate(found):
        direction = normal(*slopes.shape, seed=9).astype(float)
        ends = [[*given[:place], given[place] + step * direction, *given[place + 1 :]] for step in (1e-5, -1e-5)]
        expected = (changed(*ends[0]) - changed(*ends[1])) / 2e-5
        assert (slopes * direction).sum() == pytest.approx(expected, rel=1e-7, abs=1e-7)


def test_what_is_masked_has_none():
    """A NaN that no row attends to, and rows that attend to nothing, change nothing."""
    q, k, v, u = (normal(1, 1, rows, 4, seed=seed).astype(float) for seed, rows in enumerate((3, 5, 5, 3)))
    mask = (rg.key != 2) & (rg.query != 1)
    results = []
    for bad in (0.0, np.nan):
        k[0, 0, 2] = v[0, 0, 2] = bad
        problem = Problem.of(q, k, v, mask=mask, query_start=0)
        results.append(second(problem, Tangents(u, None, None, {}, None), np.ones((1, 1, 3, 4)), None))
    for clean, found in zip(*results):
        np.testing.assert_array_equal(clean, found)
    assert not results[0].q[0, 0, 1].any() and not results[0].k[0, 0, 2].any()
