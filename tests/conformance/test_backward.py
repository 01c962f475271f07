"""The gradients of the law: against finite differences of its forward pass, and against the reference engine."""

from dataclasses import replace

import numpy as np
import pytest

from regard.conformance.call import Call
from regard.conformance.conventions.fields import Adapter
from regard.conformance.law.backward import backward, derived, finite_differences
from regard.conformance.law.forward import forward, meaning
from regard.conformance.mistakes.catalog import CATALOG, of_name
from regard.conformance.mistakes.probes import probes
from regard.engines.reference import attention as reference
from regard.language.problem import Problem

CASES = {probe.id: probe for probe in probes(np.float64) if probe.call.dout is not None}


@pytest.mark.parametrize("name", [name for name in CASES if name != "gradients-nan"])
def test_gradients_are_the_differences_of_the_forward_pass(name):
    """dS = P (dP − δ + dlse) through scores, heads and sinks is what moving each input by a little gives."""
    call, adapter = CASES[name].call, CASES[name].adapter
    arguments = meaning(call, adapter)

    found = backward(arguments, call.q, call.k, call.v, call.dout, call.dlse)
    expected = finite_differences(arguments, call.q, call.k, call.v, call.dout, call.dlse)

    assert derived(arguments) and found.keys() >= expected.keys() >= {"q", "k", "v"}
    for role, part in expected.items():
        np.testing.assert_allclose(found[role], part, atol=1e-8)


def test_the_gradient_of_a_bias_is_the_difference_of_the_forward_pass():
    """A bias that was broadcast has the sum over the axes of size 1."""
    call = CASES["gradients-bias"].call
    arguments = meaning(call, Adapter())
    found = backward(arguments, call.q, call.k, call.v, call.dout, call.dlse)["bias"]
    step, expected = 1e-5, np.zeros(call.bias.shape)
    for place in np.ndindex(call.bias.shape):
        for sign in (1, -1):
            moved = call.bias.copy()
            moved[place] += sign * step
            outcome = forward(meaning(replace(call, bias=moved), Adapter()), call.q, call.k, call.v)
            expected[place] += sign * ((outcome.out * call.dout).sum() + (outcome.lse * call.dlse).sum()) / (2 * step)

    np.testing.assert_allclose(found, expected, atol=1e-8)


@pytest.mark.parametrize("seed", range(20))
def test_gradients_are_those_of_the_reference(seed):
    """Random calls with masks, softcap, bias, sinks and NaN behind masks: the two derivations agree."""
    rng = np.random.default_rng(seed)
    B, G, shared, Q, K, D, E = (int(size) for size in rng.integers(1, 5, 7))
    H = G * shared
    lengths = rng.integers(0, K + 1, B)
    v = rng.standard_normal((B, G, K, E))
    v[np.arange(K) >= lengths[:, None, None].repeat(G, 1)] = np.nan
    call = Call(
        q=rng.standard_normal((B, H, Q, D)),
        k=rng.standard_normal((B, G, K, D)),
        v=v,
        mask=rng.random((B, H, Q, K)) < 0.7 if rng.random() < 0.5 else None,
        causal=bool(rng.random() < 0.5),
        lengths=lengths,
        softcap=1.3 if rng.random() < 0.5 else None,
        bias=rng.standard_normal((1, H, Q, K)) if rng.random() < 0.5 else None,
        sinks=rng.standard_normal(H) if rng.random() < 0.5 else None,
        dout=rng.standard_normal((B, H, Q, E)),
        dlse=rng.standard_normal((B, H, Q)),
    )
    arguments = meaning(call, Adapter())
    problem = Problem.of(
        call.q, call.k, call.v, mask=arguments.mask, score=arguments.score, scale=arguments.scale, sinks=call.sinks
    )

    found = backward(arguments, call.q, call.k, call.v, call.dout, call.dlse)
    expected = reference.backward(problem, call.dout, call.dlse)

    for role, part in zip("qkv", (expected[0], expected[1], expected[2]), strict=True):
        np.testing.assert_allclose(found[role], part, rtol=1e-9, atol=1e-11)
    if call.sinks is not None:
        np.testing.assert_allclose(found["sinks"], np.reshape(expected[4], -1), rtol=1e-9, atol=1e-11)
    for table, part in expected[3].items():
        if table.name == "bias":
            np.testing.assert_allclose(found["bias"], part, rtol=1e-9, atol=1e-11)


GRADIENTS = [mistake.name for mistake in CATALOG if mistake.name.startswith("gradient-")]


@pytest.mark.parametrize("name", GRADIENTS)
def test_mistakes_in_gradients_leave_the_results_alone(name):
    """A mistake of the backward pass changes gradients only."""
    changed = 0
    for probe in CASES.values():
        arguments = meaning(probe.call, probe.adapter)
        other = of_name(name).change(arguments)
        if other is None:
            continue
        given = probe.call.q, probe.call.k, probe.call.v
        one, two = forward(arguments, *given), forward(other, *given)
        assert np.array_equal(one.out, two.out, equal_nan=True) and np.array_equal(one.lse, two.lse)
        right = backward(arguments, *given, probe.call.dout, probe.call.dlse)
        wrong = backward(other, *given, probe.call.dout, probe.call.dlse)
        changed += any(not np.allclose(right[role], wrong[role], equal_nan=True) for role in wrong)

    assert changed
