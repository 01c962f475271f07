"""The second derivation of the law agrees with the first, with the reference engine and with plain Python, and notices
where the first is changed.
"""

import math
from dataclasses import replace
from itertools import product

import numpy as np
import pytest

import regard as rg
from bench.rounding.variants import call
from regard.common.dtypes import FLOATS
from regard.conformance.call import Call
from regard.conformance.conventions.fields import Adapter
from regard.conformance.law.forward import forward, meaning
from regard.engines.reference import attention as reference
from regard.engines.reference import scalar
from regard.language.problem import Problem

from .by_hand import DerivationsDiffer, by_hand, confirm

ADAPTERS = [
    Adapter(causal=causal, softcap=softcap, groups=groups, scale=scale, always=always)
    for (causal, softcap, groups), (scale, always) in zip(
        product(("bottom-right", "top-left"), ("before-bias", "after-bias"), ("repeat-interleave", "tile")),
        [(None, ()), (0.3, ("causal",)), (None, ("causal", "alibi")), (0.3, ("alibi",))] * 2,
    )
]


def outcome_of(given: Call, adapter: Adapter):
    return forward(meaning(given, adapter), given.q, given.k, given.v)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("number", range(len(ADAPTERS)))
def test_both_derivations_agree(dtype, number):
    """Over random calls with every argument, in every convention that changes the law."""
    for seed in range(100 * number, 100 * number + 12):
        given = call(seed, dtype, 7)
        confirm(given, ADAPTERS[number], outcome_of(given, ADAPTERS[number]))


@pytest.mark.parametrize("number", range(len(ADAPTERS)))
def test_both_derivations_agree_about_infinities(number):
    """Among scores, biases, sinks and values, masked and attended; in empty rows, and without keys."""
    odd = np.array([np.nan, np.inf, -np.inf, 1e30], np.float32)
    for seed in range(30):
        given = call(seed, "float32", 6)
        rng = np.random.default_rng(seed)
        given = replace(
            given, v=given.v.copy(), k=given.k.copy(), sinks=rng.choice([0.0, -np.inf, np.nan], given.dims["H"])
        )
        given.v[rng.random(given.v.shape) < 0.1] = rng.choice(odd)
        given.k[rng.random(given.k.shape) < 0.02] = rng.choice(odd)
        if seed % 3:
            given = replace(given, sinks=None)
        if given.bias is not None:
            given.bias[rng.random(given.bias.shape) < 0.2] = -np.inf
        confirm(given, ADAPTERS[number], outcome_of(given, ADAPTERS[number]))


def test_no_rows_and_no_keys():
    for Q, K in ((0, 3), (3, 0), (0, 0)):
        q, k, v = np.ones((1, 2, Q, 4)), np.ones((1, 2, K, 4)), np.ones((1, 2, K, 5))
        found = by_hand(Call(q=q, k=k, v=v), Adapter())
        assert found.out.shape == (1, 2, Q, 5) and not found.out.any()
        assert found.lse.shape == (1, 2, Q) and (found.lse == -np.inf).all()


def test_it_agrees_with_the_reference_engine():
    """In the conventions of regard."""
    for seed in range(40):
        given = replace(call(seed, "float64", 7), window=None, lengths=None)
        rules = rg.causal() if given.causal else None
        mask = None if given.mask is None else rg.table(full(given.mask, given), "mask")[place(given)]
        score = rg.score if given.softcap is None else rg.softcap(given.softcap)
        if given.bias is not None:
            score = score + rg.table(full(given.bias, given), "bias")[place(given)]
        mask = rules if mask is None else mask if rules is None else mask & rules
        problem = Problem.of(given.q, given.k, given.v, mask=mask, score=score, scale=given.scale, sinks=given.sinks)
        out, lse = reference.forward(problem)
        found = by_hand(given, Adapter())
        assert np.allclose(found.out, out, rtol=1e-9, atol=1e-9), seed
        assert np.allclose(found.lse, lse, rtol=1e-9, atol=1e-9), seed


def full(array: np.ndarray, given: Call) -> np.ndarray:
    B, H, Q, K = (given.dims[name] for name in "BHQK")
    return np.ascontiguousarray(np.broadcast_to(array, (B, H, Q, K)))


def place(given: Call):
    return rg.batch, rg.head, rg.query - (given.dims["K"] - given.dims["Q"]), rg.key


def test_it_agrees_with_plain_python():
    """One causal head."""
    rng = np.random.default_rng(3)
    for Q, K in ((4, 4), (2, 5), (5, 2)):
        q, k, v = (rng.standard_normal((size, 3)) for size in (Q, K, K))
        scores = scalar.add(scalar.attention_scores(q.tolist(), k.tolist()), scalar.causal_mask(Q, K))
        out = scalar.apply_attention([scalar.softmax(row) for row in scores], v.tolist())
        found = by_hand(Call(q=q[None, None], k=k[None, None], v=v[None, None], causal=True), Adapter())
        assert np.allclose(found.out[0, 0], [[entry.data for entry in row] for row in out], rtol=0, atol=1e-14)


CHANGES = {
    "scale": lambda meant: replace(meant, scale=meant.scale * (1 + 1e-9)),
    "start": lambda meant: replace(meant, start=meant.start + 1),
    "mask": lambda meant: replace(meant, masks={}),
    "bias": lambda meant: replace(meant, scores={}),
    "heads": lambda meant: replace(meant, key_heads=meant.key_heads[::-1]),
    "sinks": lambda meant: replace(meant, sinks=None),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_defect_of_the_law_is_noticed(name):
    rng = np.random.default_rng(1)
    given = Call(
        **{role: rng.standard_normal((2, heads, 5, 4)) for role, heads in (("q", 4), ("k", 2), ("v", 2))},
        causal=True,
        mask=rng.random((2, 1, 5, 5)) < 0.8,
        bias=rng.standard_normal((1, 4, 5, 5)),
        sinks=rng.standard_normal(4),
    )
    confirm(given, Adapter(), outcome_of(given, Adapter()))
    with pytest.raises(DerivationsDiffer, match=r"^(out|lse)\[.* pair by pair"):
        confirm(given, Adapter(), forward(CHANGES[name](meaning(given, Adapter())), given.q, given.k, given.v))


def test_its_tolerance_is_a_few_units():
    """Of float64, for scores of about 1."""
    rng = np.random.default_rng(2)
    found = by_hand(Call(**{role: rng.standard_normal((1, 1, 4, 4)) for role in "qkv"}), Adapter())

    assert found.lse_error.max() < 200 * 2.0**-53 and found.out_error.max() < 1000 * 2.0**-53
    assert math.isfinite(found.lse.sum())
