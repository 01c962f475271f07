"""The error of gradients next to what the usual computation makes in the same dtype, in cases of
bench/gradient_accuracy.py.
"""

import numpy as np
import pytest

import regard as rg
from bench.gradient_accuracy import CAPS, DTYPES, Case, arrays, errors, of_torch
from regard.engines.jit.code.target import ISAS, host, limited
from regard.engines.reference import attention as reference
from regard.language.problem import Problem
from tests.support.machine import each_isa

pytestmark = pytest.mark.slow

# Numbers of rows, depth, groups of heads, and how sharp weights are.
SIZES = [(3, 24, 4, 1.0), (64, 64, 1, 3.0), (150, 24, 2, 0.5), (200, 64, 4, 2.0)]


def of_peer(peer: str):
    """The gradients of torch's operations, each of which is rounded to the dtype, with the softmax in float32; or those
    of its fused attention, or None where that does not have the rule.
    """
    return lambda case, name, parts, exact: of_torch(case, parts, DTYPES[name][1], peer)


def rounded(case, name, parts, exact):
    """The gradients of the law, rounded to the dtype."""
    return [part.astype(parts[0].dtype) for part in exact]


def worst(rule: str, name: str, others) -> float:
    """By how much regard's errors of dq, dk or dv exceed those of another computation, a geometric mean over problems,
    of the root mean squares; 0 where there is no other.
    """
    found = []
    for seed, sizes in enumerate(SIZES):
        case = Case(rule, *sizes)
        *qkv, dout = parts = arrays(case, DTYPES[name][0], seed)
        exact = reference.backward(Problem.of(*(part.astype(np.float64) for part in qkv), **case.rule), dout)[:3]
        ours, theirs = rg.attention_backward(dout, *qkv, engine="jit", **case.rule), others(case, name, parts, exact)
        if theirs is None:
            return 0
        with np.errstate(divide="ignore", invalid="ignore"):
            found.append(np.log(errors(ours[:3], exact) / errors(theirs, exact))[:, 1])
    kept = np.ma.masked_invalid(found)
    assert kept.count() > len(SIZES)
    return np.exp(kept.mean(0).filled(0)).max()


@pytest.mark.spread
@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", DTYPES)
@pytest.mark.parametrize("rule", ["dense", "causal", "window", "alibi", "sinks", *CAPS])
def test_no_larger_than_those_of_torch(rule, name):
    """The error is at most that of torch's operations, and of its fused attention where it has the rule, in the same
    dtype, on the same numbers. In float32 a row of few keys may lose a little more than the operations: δ is
    Σ dout · out, not Σ P · dP of the rounded dP from which it is subtracted.
    """
    assert 0 < worst(rule, name, of_peer("eager")) <= (1.3 if name == "float32" else 1.1)
    fused = worst(rule, name, of_peer("flash"))
    assert fused <= 1.1 and (fused > 0) == (rule in ("dense", "causal", "window", "alibi"))


@pytest.mark.spread
@each_isa
@pytest.mark.parametrize("name", ["float16", "bfloat16"])
@pytest.mark.parametrize("rule", ["causal", "softcap", "sinks"])
def test_16_bit_gradients_lose_only_the_last_rounding(rule, name, isa):
    """dq, dk and dv are as near as the rounding of the result allows, and that of P and dS where products take
    pairs of bfloat16: that out was rounded to 16 bits adds nothing.
    """
    with limited(isa):
        limit = 1.8 if ISAS[host().isa].pairs and name == "bfloat16" else 1.15
        assert 0 < worst(rule, name, rounded) <= limit
