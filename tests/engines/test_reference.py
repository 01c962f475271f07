"""The law itself: against finite differences, and against its own parts."""

import functools
import tracemalloc

import numpy as np
import pytest

import regard as rg
from regard.engines.reference import attention as reference
from regard.language.problem import Problem
from tests.engines.jit.usual import slopes
from tests.support import engines
from tests.support.lanes import by_name

B, G, H, Q, K, D, E = 2, 2, 4, 5, 6, 3, 2


normal = functools.partial(engines.normal, dtype=np.float64)
arrays = functools.partial(engines.qkv, H=H, Q=Q, K=K, D=D, E=E, G=G, B=B, dtype=np.float64)


def every(problem):
    return reference.weights(problem, np.arange(problem.dims["Q"]), np.arange(problem.dims["K"]))


s = rg.score
height = rg.table(normal(K), "height")
RULES = {
    "plain": {},
    "causal": {"mask": rg.causal()},
    "empty rows": {"mask": rg.causal() & (rg.query != 2)},
    "start": {"mask": rg.causal(), "query_start": np.array([-2, 3])},
    "sinks": {"mask": rg.causal() & (rg.query > 2), "sinks": normal(H)},
    "three sinks": {"mask": rg.window(2), "sinks": normal(H, 3)},
    "softcap": {"score": rg.softcap(0.7), "mask": rg.causal()},
    "alibi": {"score": rg.alibi(abs(normal(H)))},
    "bias": {"score": rg.bias(normal(B, 1, Q, K))},
    "relative": {"score": rg.relative(normal(H, 5)), "mask": rg.causal()},
    "gate": {"score": rg.gate(normal(H, Q, K))},
    "t5": {"score": rg.t5_buckets(normal(8, H), bidirectional=True, max_distance=5)},
    "where": {"score": rg.where((rg.key + rg.head) % 2 == 0, s * s, rg.where(rg.key == 1, float("-inf"), -s))},
    "twice": {"score": s * height[rg.key] + rg.tanh(height[rg.query - rg.key]), "mask": rg.causal()},
    "composed": {"score": rg.softcap(2.0, rg.relative(normal(7), rg.alibi(abs(normal(H))))), "sinks": np.ones(H)},
    "without the score": {"score": height[rg.query] * rg.sin(0.3 * rg.key)},
    "dropout": {"mask": rg.causal(), "sinks": normal(H), "dropout": 0.4, "seed": 11},
    "scale": {"scale": -0.9, "score": rg.exp(0.3 * s) + rg.sigmoid(s)},
}


def loss(problem, dout, dlse):
    out, lse = reference.forward(problem)
    return (out * dout).sum() + (np.where(np.isfinite(lse), lse, 0) * dlse).sum()


@by_name("rule", RULES)
def test_backward_agrees_with_finite_differences(rule):
    """Each gradient is the slope of Σ out · dout + Σ lse · dlse, measured by moving one number at a time."""
    problem = Problem.of(*arrays(), **rule)
    dout, dlse = normal(B, H, Q, E), normal(B, H, Q)
    found = reference.backward(problem, dout, dlse)
    sinks = [] if problem.sinks is None else [problem.sinks]
    h = 1e-5
    numbers = [problem.q, problem.k, problem.v, *(table.array for table in found.tables), *sinks]
    for moved, gradient in zip(numbers, slopes(found), strict=True):
        assert gradient.shape == moved.shape
        slope = np.zeros(moved.shape)
        for place in np.ndindex(moved.shape):
            kept, ends = moved[place], []
            for moved[place] in (kept + h, kept - h, kept):
                ends.append(loss(problem, dout, dlse))
            slope[place] = (ends[0] - ends[1]) / (2 * h)
        np.testing.assert_allclose(gradient, slope, rtol=1e-6, atol=1e-8)


def test_every_float_table_of_the_score_gets_a_gradient():
    """Tables of numbers that the score reads have an entry, even one that is zero; tables of integers and of masks have
    none.
    """
    step = rg.table(np.array([0.5, 1.5]), "step")
    number = rg.table(np.array([0, 1]), "number")
    score = rg.where(step[0] < 1, s, 0.0) + height[number[rg.key % 2]]
    problem = Problem.of(*arrays(), score=score, mask=rg.table(np.ones(K), "mask")[rg.key] > 0)
    found = reference.backward(problem, np.ones((B, H, Q, E)), np.ones((B, H, Q)))
    assert set(found.tables) == {step, height}
    assert not found.tables[step].any()
    assert found.tables[height].sum() == pytest.approx(B * H * Q)  # d lse / d score sums to 1 per row


@by_name("rule", RULES)
def test_weights_are_what_forward_used(rule):
    """weights @ v is the output; a rectangle in any order is a cut of the whole."""
    problem = Problem.of(*arrays(), **rule)
    out, p = reference.forward(problem)[0], every(problem)
    np.testing.assert_allclose(p @ np.repeat(problem.v, H // G, 1), out, rtol=1e-12, atol=1e-15)
    rows, keys = np.array([3, 0, 3]), np.array([5, 1])
    np.testing.assert_array_equal(reference.weights(problem, rows, keys), p[:, :, rows][..., keys])


def test_weights_of_a_corner_need_no_matrix():
    """Some rows of 30,000 × 30,000 take a few blocks of memory; the matrix would be 7 GB."""
    x = engines.normal(30_000, 16)
    problem = Problem.of(x, x, None, mask=rg.causal())
    tracemalloc.start()
    many = reference.weights(problem, np.arange(29_900, 30_000), np.array([0]))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert many.shape == (1, 1, 100, 1)
    assert peak < 16e6


@pytest.mark.parametrize("low", [-1e20, float(np.finfo(np.float32).min), 1e20, 1e300])
def test_scores_of_any_size_have_weights_that_sum_to_one(low):
    """A row whose scores are all huge and equal is a mean: its weights sum to 1, in the output and the gradients too;
    sinks as large as the scores take equal shares, and sinks far above them everything.
    """
    score = rg.bias(np.full((Q, K), low))
    problem = Problem.of(*arrays(), score=score)
    np.testing.assert_allclose(every(problem), 1 / K)
    mean = np.repeat(problem.v, H // G, axis=1).mean(2, keepdims=True)
    np.testing.assert_allclose(reference.forward(problem)[0], np.broadcast_to(mean, (B, H, Q, E)))
    np.testing.assert_allclose(reference.backward(problem, np.ones((B, H, Q, E))).v, Q / K * H / G)
    beside = every(Problem.of(*arrays(), score=score, sinks=np.full((H, 2), low)))
    np.testing.assert_allclose(beside, 1 / (K + 2))
    assert not every(Problem.of(*arrays(), sinks=np.full(H, abs(low)))).any()
