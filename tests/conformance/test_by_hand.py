"""A second derivation of the law, in wide numbers, agrees with the first; its gradients are those of differences."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from bench.rounding.variants import call
from bench.rounding.variants import call as random_call
from regard.conformance.conventions.fields import Adapter
from regard.engines.reference import attention as reference
from regard.language.problem import Problem
from regard.laws.backward import backward, derived, finite_differences
from regard.laws.call import Call
from regard.laws.forward import forward, meaning
from regard.laws.probes import probes
from tests.conformance.implementations import on_heads, scores, softmax

UNIT = 2.0**-53


def finite(x):
    """|x|, and 0 for infinities and NaN."""
    return np.where(np.isfinite(x), np.abs(x), 0)


@np.errstate(all="ignore")
def by_hand(call, adapter):
    """out, lse, and how far each may be from another computation in float64. A row without keys gives 0, and −∞ or the
    sink for lse.
    """
    q, k, v = on_heads(call.q, call.k, call.v, adapter, np.longdouble)
    given = {name: part for name, part in vars(call).items() if part is not None}
    if call.window is not None:
        given["window"] = tuple(np.inf if part is None else part for part in call.window)
    adapter = replace(adapter, window="left-right")
    kept = scores(q, k, given, adapter)
    _, lse, weights = softmax(kept, v, call.sinks, adapter)
    parts = np.where(weights == 0, 0, np.einsum("bhqk,bhke->ebhqk", weights, v))
    bias = {} if call.bias is None else {"bias": finite(call.bias)}
    every = kept, scores(finite(q), finite(k), given | bias | {"softcap": None}, adapter)
    size = finite(np.concatenate(every, -1)).max(-1, initial=finite(0 if call.sinks is None else call.sinks).max())
    error = UNIT * (16 + 2 * q.shape[3] + 2 * k.shape[2] + (8 + q.shape[3]) * size)
    out, sizes = (np.moveaxis(part.sum(-1), 0, -1) for part in (parts, finite(parts)))
    return out, lse, 4 * error[..., None] * sizes, error + 4 * UNIT * finite(lse)


def agree(given, adapter):
    """Whether both derivations give the same, up to rounding."""
    law = forward(meaning(given, adapter), given.q, given.k, given.v)
    out, lse, *errors = (part.astype(float) for part in by_hand(given, adapter))
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


@pytest.mark.parametrize("number", range(len(ADAPTERS)))
def test_both_derivations_agree(number):
    """Over random calls with every argument, in every convention that changes the law; NaN and infinities are among
    scores, biases, sinks and values, masked and attended; in empty rows.
    """
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


# ---- gradients -------------------------------------------------------------------------------------------------------

CASES = {probe.id: probe for probe in probes(np.float64) if probe.call.dout is not None}


@pytest.mark.parametrize("name", [name for name in CASES if name != "gradients-nan"])
def test_gradients_are_the_differences_of_the_forward_pass(name):
    """dS = P (dP − δ + dlse) through scores, heads and sinks is what moving each input by a little gives."""
    call, conventions = CASES[name].call, CASES[name].conventions
    arguments = meaning(call, conventions)

    found = backward(arguments, call.q, call.k, call.v, call.dout, call.dlse)
    expected = finite_differences(arguments, call.q, call.k, call.v, call.dout, call.dlse)

    assert derived(arguments) and found.keys() >= expected.keys() >= {"q", "k", "v"}
    for role, part in expected.items():
        np.testing.assert_allclose(found[role], part, atol=1e-8)


@pytest.mark.parametrize("seed", range(20))
def test_gradients_are_those_of_the_reference(seed):
    """Random calls with every argument and NaN behind masks: the two derivations agree."""
    call, rng = random_call(seed, "float64", 5), np.random.default_rng(seed)
    call = replace(call, v=call.v.copy(), lengths=rng.integers(0, call.dims["K"] + 1, call.dims["B"]))
    call.v[np.broadcast_to(np.arange(call.dims["K"]) >= call.lengths[:, None, None], call.v.shape[:3])] = np.nan
    meant = meaning(call, Adapter())
    rules = {"mask": meant.mask, "score": meant.score, "scale": meant.scale, "sinks": call.sinks}

    found = backward(meant, call.q, call.k, call.v, call.dout, call.dlse)
    q, k, v, tables, sinks = reference.backward(Problem.of(call.q, call.k, call.v, **rules), call.dout, call.dlse)

    wanted = {"q": q, "k": k, "v": v} | {table.name: part for table, part in tables.items() if table.name == "bias"}
    wanted |= {} if call.sinks is None else {"sinks": np.reshape(sinks, -1)}
    for role, part in wanted.items():
        np.testing.assert_allclose(found[role], part, rtol=1e-9, atol=1e-9 * abs(part).max(initial=1))
