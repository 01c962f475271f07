"""The second derivation of the law agrees with the first and with the reference engine, and notices where the first is
changed.
"""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from bench.rounding.variants import call
from regard.common.dtypes import FLOATS
from regard.conformance.conventions.fields import Adapter
from regard.engines.reference import attention as reference
from regard.language.problem import Problem
from regard.laws.call import Call
from regard.laws.forward import forward, meaning

from .by_hand import DerivationsDiffer, by_hand, confirm

ADAPTERS = [
    Adapter(causal=causal, softcap=softcap, groups=groups, scale=scale, always=always)
    for (causal, softcap, groups), (scale, always) in zip(
        product(("bottom-right", "top-left"), ("before-bias", "after-bias"), ("repeat-interleave", "tile")),
        [(None, ()), (0.3, ("causal",)), (None, ("causal", "alibi")), (0.3, ("alibi",))] * 2,
    )
]


def outcome_of(given, adapter):
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
    """Among scores, biases, sinks and values, masked and attended; in empty rows."""
    odd = np.array([np.nan, np.inf, -np.inf, 1e30], np.float32)
    for seed in range(30):
        given, rng = call(seed, "float32", 6), np.random.default_rng(seed)
        sinks = None if seed % 3 else rng.choice([0.0, -np.inf, np.nan], given.dims["H"])
        given = replace(given, v=given.v.copy(), k=given.k.copy(), sinks=sinks)
        for part, share, values in ((given.v, 0.1, odd), (given.k, 0.02, odd), (given.bias, 0.2, -np.inf)):
            if part is not None:
                part[rng.random(part.shape) < share] = rng.choice(values) if values is odd else values
        confirm(given, ADAPTERS[number], outcome_of(given, ADAPTERS[number]))


@pytest.mark.parametrize(("Q", "K"), [(0, 3), (3, 0)])
def test_no_rows_and_no_keys(Q, K):
    given = Call(q=np.ones((1, 2, Q, 4)), k=np.ones((1, 2, K, 4)), v=np.ones((1, 2, K, 5)))
    confirm(given, Adapter(), outcome_of(given, Adapter()))


def test_it_agrees_with_the_reference_engine():
    """In the conventions of regard."""
    for seed in range(40):
        given = call(seed, "float64", 7)
        meant = meaning(given, Adapter())
        rules = {"mask": meant.mask, "score": meant.score, "scale": meant.scale, "sinks": given.sinks}
        out, lse = reference.forward(Problem.of(given.q, given.k, given.v, **rules))
        found = by_hand(given, Adapter())
        assert np.allclose(found.out, out, rtol=1e-9, atol=1e-9), seed
        assert np.allclose(found.lse, lse, rtol=1e-9, atol=1e-9), seed


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
