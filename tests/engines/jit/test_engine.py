"""The compiled engine against the law, over random masks x scores x shapes x strides x starts x sinks.

The error budget of a case comes from the case: what the usual computation in the dtype of its sums (NumPy: matrix
product, softmax, matrix product) makes on the same input, and what rounding the inputs' last bits does to the exact
result. 16-bit results are then rounded once, and where pairs of bfloat16 are multiplied, so is every weight.
"""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import regard as rg
from regard.engines.jit.code.target import limited
from regard.engines.reference import attention as reference
from regard.language import analysis as readings
from regard.language.problem import Problem
from tests.engines.jit.usual import large_examples, shaken, softmax
from tests.support.engines import DTYPES, qkv
from tests.support.in_numpy import in_numpy
from tests.support.machine import narrower_isas
from tests.support.strategies import dropouts, problems


def lse_budget(problem: Problem) -> np.ndarray:
    """(B, H, Q) how far the lse of each row may be from the law.

    A dot product of D terms in a precision of eps is within D · eps / 2 · Σ|q·k| of the exact one, in any order of
    summation (Higham 2002, section 3.1), and scaling it adds one rounding. The score rule turns that interval into one
    of the new score, measured at its ends and between them, and adds its own rounding: that of NumPy, and a few units
    of the result for other implementations of exp and tanh. lse increases with every score, so it lies between the lse
    of the lower and of the upper ends. The exponentials and their sum of K terms add K · eps / 2, and the maximum and
    the logarithm a few units of their size.
    """
    eps, (D, K) = float(np.finfo(problem.real).eps), (problem.dims[name] for name in "DK")
    with np.errstate(all="ignore"):
        s, values = reference.logits(problem, *reference.everywhere(problem))
        k = np.abs(reference.per_query_head(problem, problem.k))
        terms = abs(problem.scale) * (np.abs(problem.q.astype(np.float64)) @ k.swapaxes(-1, -2))
        wrong = (D + 2) / 2 * eps * terms
        if problem.score is not None:

            def allowed(found):
                return np.where(s == -np.inf, 0, np.broadcast_to(found, s.shape))

            def scored(logits):
                return allowed(readings.evaluate(problem.score, values | {"score": logits}, problem.real))

            exact, score = scored(values["score"]), values["score"]
            usual = allowed(in_numpy(problem.score, values, problem.real).astype(np.float64))
            wrong = np.max([np.abs(scored(score + part * wrong) - exact) for part in (-1, -0.5, 0.5, 1)], axis=0)
            wrong = wrong + 4 * np.abs(usual - exact) + 8 * eps * np.abs(exact)
        lse, low, high = (
            reference.with_sinks(problem, reference.denominator(np.where(s == -np.inf, s, s + part * wrong))).lse
            for part in (0, -1, 1)
        )
        size = np.where(np.isfinite(s), np.abs(s), 0).max(-1, initial=0)
        return np.maximum(high - lse, lse - low) + eps * (K / 2 + 8 * (1 + size + np.abs(lse)))


def judge(kwargs) -> None:
    """One call of the compiled engine is as exact as its input allows, empty where the law says so, and refuses
    nothing.
    """
    problem = Problem.of(**kwargs)
    exact, exact_lse = law = reference.forward(problem)
    found = rg.attention_with_lse(**kwargs, engine="jit")
    out, lse = (each.reshape(right.shape) for each, right in zip(found, law, strict=True))
    np.testing.assert_array_equal(np.isneginf(lse), np.isneginf(exact_lse))
    np.testing.assert_array_equal(np.isnan(out), np.isnan(exact))
    finite = np.isfinite(exact)
    assert not out[np.isneginf(lse)].any()
    size = np.abs(exact[finite]).max(initial=0) + np.abs(problem.v.astype(np.float64)).max(initial=0)
    ordinary = softmax(problem)
    p = (ordinary.p * reference.left_over(problem, ordinary.values)).astype(problem.real)
    others = [p @ ordinary.v, *(reference.forward(shaken(problem, seed))[0] for seed in (1, 2))]
    usual, *moved = (np.abs(other - exact)[finite].max(initial=0) for other in others)
    eps, coarse = float(np.finfo(problem.real).eps), float(ml_dtypes.finfo(problem.dtype).eps)
    budget = 4 * (usual + max(moved)) + 8 * eps * size + (2 * coarse * size if coarse > eps else 0)
    error = np.abs(out.astype(np.float64) - exact)[finite].max(initial=0)
    assert error <= budget, f"error {error:.2e} over the budget of {budget:.2e}"
    seen = np.isfinite(exact_lse)
    off, allowed = np.abs(lse[seen] - exact_lse[seen]), lse_budget(problem)[seen]
    assert (off <= allowed).all(), f"lse: {(off / allowed).max():.3g} times the budget of its row"


@pytest.mark.slow
@large_examples(1000, 6)
@given(case=problems(dtypes=DTYPES), falling=st.just({}) | dropouts)
def test_jit_agrees_with_the_law(case, falling):
    """Any valid problem, with or without dropout, on the widest vectors of this machine."""
    judge(case.kwargs | falling)


@narrower_isas
@large_examples(15, 5)
@given(case=problems(dtypes=DTYPES, rows=30, depth=40))
def test_jit_agrees_with_the_law_on_narrower_machines(isa, case):
    """The same with the features restricted to AVX2, and to what any machine has."""
    with limited(isa):
        judge(case.kwargs)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("depth", [1, 2, 3, 7, 31, 33, 96, 127, 128, 192, 257, 512])
def test_every_depth(depth):
    """D and E from 1 to 512, even and odd, alike and not."""
    for values in (depth, 513 - depth):
        q, k, v = qkv(Q=20, K=20, D=depth, E=values, B=1)
        judge({"q": q, "k": k, "v": v, "mask": rg.causal()})


@pytest.mark.spread
@pytest.mark.parametrize("rows", [0, 1, 15, 16, 17, 63, 64, 65, 200])
@pytest.mark.parametrize("keys", [0, 1, 15, 63, 64, 65, 129, 300])
def test_every_length(rows, keys):
    """Rows and keys of 0, 1, and around the size of a tile."""
    q, k, v = qkv(H=1, Q=rows, K=keys, D=8, E=8, B=1)
    judge({"q": q, "k": k, "v": v, "mask": rg.causal() & rg.window(100)})
