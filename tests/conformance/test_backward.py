"""The gradients of the law: against finite differences of its forward pass, and against the reference engine."""

from dataclasses import replace

import numpy as np
import pytest

from bench.rounding.variants import call as random_call
from regard.conformance.conventions.fields import Adapter
from regard.engines.reference import attention as reference
from regard.language.problem import Problem
from regard.laws.backward import backward, derived, finite_differences
from regard.laws.forward import meaning
from regard.laws.probes import probes

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
