"""The range of a score (law 10): numbers beyond float32 in constants, tables and results mean the same in every engine.

The scores of these problems are small multiples of 0.5 and the constants powers of two (or beyond float32), so that
float32 computes nearly every rule exactly: what differs between engines is what they make of the range.
"""

import operator

import ml_dtypes
import numpy as np
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

import regard as rg
from regard.engines import sdpa
from regard.engines.reference import attention as reference
from regard.language.analysis import evaluate, in_range
from regard.language.expr import Expr, lift
from regard.language.problem import Problem
from tests.engines.jit.test_backward import law, usual
from tests.engines.jit.usual import gradients_of, slopes
from tests.support.engines import DTYPES
from tests.support.in_numpy import in_numpy
from tests.support.lanes import SWEEP, examples

H, Q, K, D = 2, 5, 9, 4
LARGE = [2.0**126, 2.0**127, -(2.0**127), 2.0**128, -(2.0**128), 1e39, -1e39, 1e300, -1e300, -(2.0**1023)]
NUMBERS = st.sampled_from([*LARGE, *LARGE, 2.0**-126, 1e-46, -1e-46, 1e-300, 0.0, 0.5, 1.0, -2.0])
many = examples(250, suppress_health_check=list(HealthCheck))
compiled = settings(many, max_examples=270 if SWEEP else 6)  # each example compiles kernels of its own


@st.composite
def tables(draw) -> Expr:
    """An element of a float64 table, most of them ordinary numbers."""
    rng = np.random.default_rng(draw(st.integers(0, 999)))
    shape, index = draw(
        st.sampled_from([((K,), (rg.key,)), ((H,), (rg.head,)), ((Q, K), (rg.query - (K - Q), rg.key))])
    )
    array = rng.choice([0.0, 0.5, -1.0], shape)
    return rg.table(np.where(rng.random(shape) < 0.3, draw(NUMBERS), array), "numbers")[index]


OPERATORS = [
    *(operator.add, operator.sub, operator.mul, operator.truediv, rg.minimum, rg.maximum),
    lambda x, y: (x + y) - y,
    lambda x, y: rg.where(x < y, x, rg.score),
    lambda x, y: rg.where(x >= y, rg.score, y),
    lambda x, y: rg.where(rg.key <= rg.query, x, y),
    lambda x, y: rg.where(rg.key <= rg.query, rg.score, y),
    lambda x, y: abs(x),
    lambda x, y: rg.tanh(x),
    lambda x, y: -x,
]


@st.composite
def rules(draw, depth: int = 3) -> Expr:
    """A score of the operators for which the range matters, over constants and tables around its ends."""
    if depth == 0 or draw(st.integers(0, 3)) == 0:
        return draw(st.one_of(st.just(rg.score), st.just(rg.score), NUMBERS.map(lift), tables()))
    return draw(st.sampled_from(OPERATORS))(draw(rules(depth - 1)), draw(rules(depth - 1)))


def arrays(dtype, seed):
    rng = np.random.default_rng(seed)
    return [rng.integers(-1, 2, (1, H, rows, D)).astype(dtype) for rows in (Q, K, K)]


def same_kind(found, wanted, what):
    """NaN and infinities at the same places."""
    found, wanted = (np.where(np.isfinite(each), 0, each) for each in (found, wanted))
    np.testing.assert_array_equal(found, wanted, err_msg=what)


def exact_within(found, wanted, budget, what):
    """The same NaN and infinities, and elsewhere errors within the budget."""
    found, wanted = np.asarray(found, np.float64), np.asarray(wanted, np.float64)
    same_kind(found, wanted, what)
    finite = np.isfinite(wanted)
    error = np.abs(found[finite] - wanted[finite]).max(initial=0)
    assert error <= budget, f"{what}: error {error:.2e} over the budget of {budget:.2e}"


def check(found, exact, budget, what):
    """Results, by name, are exact within their budgets."""
    for name, part in found.items():
        exact_within(part, exact[name], budget[name], f"{name} of {what}")


@many
@given(rules(), st.integers(0, 9))
def test_the_law_has_the_range_of_float32(rule, seed):
    """A score in the law is NaN and infinite where NumPy's is, computed in float32."""
    q, k, v = arrays(np.float32, seed)
    with np.errstate(all="ignore"):
        problem = Problem.of(q, k, v)
        _, values = reference.logits(problem, *reference.everywhere(problem))
        found = in_range(evaluate(rule, values, np.float32), np.float32)
    same_kind(found, np.broadcast_to(in_numpy(rule, values, np.float32).astype(np.float32), found.shape), str(rule))


def statistics_of(s):
    """lse, the output for values that are the identity, and statistics of scores (…, K)."""
    below = reference.denominator(s)
    p = reference.shares(s, below)
    terms = np.where(p == 0, 0, p * np.log(np.where(p == 0, 1, p)))
    out = reference.weighted_sum(p, s != -np.inf, np.broadcast_to(np.eye(K), (*s.shape[:2], K, K)))
    return {"lse": below.lse, "out": out, "received": p.sum(-2), "entropy": -terms.sum(-1), "maximum": p.max(-1)}


def added_twice(rule):
    """Whether two numbers are added to the score: sdpa adds their sum, which is another number if they cancel."""
    return any(child.scored and child is not rg.score for child in rule.children)


def expected(rule, dtype, seed):
    """The arrays of a call with values that are the identity, its results by the law, and the error of each that is
    allowed: that of the rule in NumPy, in the dtype of sums.
    """
    q, k, _ = arrays(dtype, seed)
    v = np.broadcast_to(np.eye(K), (1, H, K, K)).astype(dtype)
    problem = Problem.of(q, k, v, score=rule)
    eps, own = float(np.finfo(problem.real).eps), float(ml_dtypes.finfo(dtype).eps)
    with np.errstate(all="ignore"):
        s, values = reference.logits(problem, *reference.everywhere(problem))
        size = np.abs(s[np.isfinite(s)]).max(initial=8)
        exact, ordinary = (
            statistics_of(scores)
            for scores in (s, np.broadcast_to(in_numpy(rule, values, problem.real).astype(np.float64), s.shape))
        )
    budget = {}
    for name, wanted in exact.items():
        finite = np.isfinite(wanted) & np.isfinite(ordinary[name])
        scale = size if name == "lse" else K
        budget[name] = 4 * np.abs(ordinary[name][finite] - wanted[finite]).max(initial=0) + 32 * eps * scale
    budget["out"] += 4 * own
    return problem, exact, budget


def steady(rule, problem):
    """Whether another rounding of float64 gives the same scores: not if large numbers of a tanh cancel."""
    _, values = reference.logits(problem, *reference.everywhere(problem))
    usual, finer = (in_numpy(rule, values, real) for real in (np.float64, np.longdouble))
    return np.isclose(usual, finer, rtol=0, atol=1e-6, equal_nan=True).all()


@compiled
@given(rules(), st.sampled_from(DTYPES), st.integers(0, 9))
def test_every_engine_has_the_range_of_the_law(rule, dtype, seed):
    """out, lse and statistics of every engine that takes the rule, and of a cache, against the law."""
    problem, exact, budget = expected(rule, dtype, seed)
    assume(steady(rule, problem))
    q, k, v = problem.q, problem.k, problem.v
    for engine in ("reference", "jit", "sdpa"):
        if engine == "sdpa" and (sdpa.why_not(problem) or added_twice(rule)):
            continue
        out, lse = rg.attention_with_lse(q, k, v, score=rule, engine=engine)
        check({"out": out, "lse": lse}, exact, budget, engine)
    cache = rg.KVCache(heads=H, depth=D, value_depth=K, dtype=dtype)
    cache.append(k, v)
    check({"out": cache.attend(q, score=rule, query_start=K - Q)}, exact, budget, "a cache")
    of = ["lse", "received", "entropy"]
    found = rg.attention_stats(q, k, score=rule, of=[*of, "maximum"], engine="jit")
    check({name: found[name] for name in of} | {"maximum": found.maximum.weight}, exact, budget, "statistics")


@compiled
@given(rules(), st.sampled_from([np.float32, np.float64]), st.integers(0, 9))
def test_gradients_have_the_range_of_the_law(rule, dtype, seed):
    """Gradients against the law where they are small enough for the dtype of sums, and NaN nowhere else."""
    problem = Problem.of(*arrays(dtype, seed), score=rule)
    # The smaller of two equal tanh is that of the last bit, and so is the side whose derivative counts.
    assume(steady(rule, problem) and str(rule).count("tanh") < 2)
    dout = np.random.default_rng(seed).integers(-2, 3, (1, H, Q, D)).astype(dtype)
    wanted, sizes = law(problem, dout), usual(problem, dout, None, absolute=True)
    found, eps = gradients_of(problem, dout), float(np.finfo(problem.real).eps)
    for mine, size, exact in zip(*map(slopes, (found, sizes, wanted)), strict=True):
        # A sum may be infinite if its terms add up to the largest number, in whatever order.
        certain = np.isfinite(exact) & (size < ml_dtypes.finfo(mine.dtype).max / 4)
        own = float(ml_dtypes.finfo(mine.dtype).eps)
        budget = (64 * eps + 4 * own) * np.maximum(size[certain].max(initial=0), 1)
        exact_within(mine[certain], exact[certain], budget, "gradient")
        assert not np.isfinite(mine[np.isnan(exact)]).any()
