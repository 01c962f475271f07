"""A second derivation of the law, row by row in wide numbers, agrees with the first and with the reference engine, and
notices where the first is changed.
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

UNIT = 2.0**-53


def finite(x):
    """|x|, and 0 for infinities and NaN."""
    return np.where(np.isfinite(x), np.abs(x), 0)


def slope(head, heads):
    """The slope of ALiBi for a head, as the code of its paper has it."""
    power = 2 ** int(np.log2(heads))
    return 2.0 ** (-8 * (head + 1) / power if head < power else -4 * (2 * (head - power) + 1) / power)


def row(call, adapter, b, h, i):
    """out (E) and lse of one row, read from the call and the conventions alone, and how far each may be from another
    computation in float64. A row without keys gives 0, and −∞ or the sink for lse.
    """
    B, H, G, Q, K, D = (call.dims[name] for name in "BHGQKD")
    group = h % G if adapter.groups == "tile" else h // (H // G)
    q, k, v = (part.astype(np.longdouble) for part in (call.q[b, h, i], call.k[b, group], call.v[b, group]))
    keys, position = np.arange(K), i if adapter.causal == "top-left" else i + K - Q
    before, after = call.window or (None, None)
    allowed = (keys <= position) | (not call.causal and "causal" not in adapter.always)
    allowed &= keys < (K if call.lengths is None else call.lengths[b])
    allowed &= keys >= (0 if before is None else position - before)
    allowed &= keys <= (K if after is None else position + after)
    bias, mask = (
        0 if part is None else np.broadcast_to(part, (B, H, Q, K))[b, h, i] for part in (call.bias, call.mask)
    )
    scale = adapter.scale if call.scale is None else call.scale
    terms = k * q * (D**-0.5 if scale is None else scale)
    distance = slope(h, H) * abs(position - keys) if "alibi" in adapter.always else 0 * keys
    sizes = finite(terms).sum(-1) + finite(bias) + distance

    def capped(score):
        return score if call.softcap is None else call.softcap * np.tanh(score / call.softcap)

    scores = terms.sum(-1) - distance
    scores = capped(scores + bias) if adapter.softcap == "after-bias" else capped(scores) + bias
    present = allowed & (call.mask is None or mask) & (scores != -np.inf)
    every = np.append(scores[present], [] if call.sinks is None else call.sinks[h])
    top = every.max(initial=-np.inf)
    powers = np.exp(every - (0 if top == -np.inf else top))  # NaN if a score or the sink is NaN or infinite
    weights, values = (powers / powers.sum())[: present.sum(), None], v[present]
    lse, parts = top + np.log(powers.sum()), np.where(weights == 0, 0, weights * values)
    size = max(finite(each).max(initial=0) for each in (sizes[allowed], every))
    error = UNIT * (16 + 2 * D + 2 * K + (8 + D) * size)
    return parts.sum(0), lse, 4 * error * finite(parts).sum(0), error + 4 * UNIT * finite(lse)


@np.errstate(all="ignore")
def by_hand(call, adapter):
    """out, lse, and how far each may be from another computation, row by row."""
    B, H, Q, E = (call.dims[name] for name in "BHQE")
    found = [np.zeros((B, H, Q, *more)) for more in ((E,), (), (E,), ())]
    for place in np.ndindex(B, H, Q):
        for array, part in zip(found, row(call, adapter, *place), strict=True):
            array[place] = part
    return found


def agree(given, adapter, arguments=None):
    """Whether both derivations give the same, up to rounding; arguments: other ones than those of the call."""
    law = forward(arguments or meaning(given, adapter), given.q, given.k, given.v)
    out, lse, *errors = by_hand(given, adapter)
    with np.errstate(all="ignore"):  # infinities and NaN
        return all(
            ((abs(mine - other) <= error) | (mine == other) | (np.isnan(mine) & np.isnan(other))).all()
            for mine, other, error in zip((out, lse), (law.out, law.lse), errors, strict=True)
        )


ADAPTERS = [
    Adapter(causal=causal, softcap=softcap, groups=groups, scale=scale, always=always)
    for (causal, softcap, groups), (scale, always) in zip(
        product(("bottom-right", "top-left"), ("before-bias", "after-bias"), ("repeat-interleave", "tile")),
        [(None, ()), (0.3, ("causal",)), (None, ("causal", "alibi")), (0.3, ("alibi",))] * 2,
    )
]


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("number", range(len(ADAPTERS)))
def test_both_derivations_agree(dtype, number):
    """Over random calls with every argument, in every convention that changes the law."""
    for seed in range(100 * number, 100 * number + 12):
        given = call(seed, dtype, 7)
        assert agree(given, ADAPTERS[number]), seed


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
        assert agree(given, ADAPTERS[number]), seed


@pytest.mark.parametrize(("Q", "K"), [(0, 3), (3, 0)])
def test_no_rows_and_no_keys(Q, K):
    given = Call(q=np.ones((1, 2, Q, 4)), k=np.ones((1, 2, K, 4)), v=np.ones((1, 2, K, 5)))
    assert agree(given, Adapter())


def test_it_agrees_with_the_reference_engine():
    """In the conventions of regard."""
    for seed in range(40):
        given = call(seed, "float64", 7)
        meant = meaning(given, Adapter())
        rules = {"mask": meant.mask, "score": meant.score, "scale": meant.scale, "sinks": given.sinks}
        out, lse = reference.forward(Problem.of(given.q, given.k, given.v, **rules))
        for mine, other in zip(by_hand(given, Adapter()), (out, lse)):
            assert np.allclose(mine, other, rtol=1e-9, atol=1e-9), seed


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
    assert agree(given, Adapter())
    assert not agree(given, Adapter(), CHANGES[name](meaning(given, Adapter())))
