"""What the output of a call alone says about it: usual mistakes are named, and what a dtype rounds is none."""

from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest
import torch

import regard as rg
from regard.audits.checks import CHECKS, RunCheck, selected
from regard.audits.checks import names as names_of_checks
from regard.audits.finding import Skipped
from regard.audits.run_checks.audited_run import SEEN, arguments_of
from regard.common.dtypes import FLOATS
from tests.audits.small_audits import checked
from tests.support.engines import normal
from tests.support.runs import CAUSAL, alarms, alarms_of, call_of, checks, run_of, sdpa, softmax

WRONG = {
    "a mask that is applied after the softmax": ("mask", lambda s, v: (softmax(s) * CAUSAL) @ v),
    "a mask added as numbers 0 and 1": ("mask", lambda s, v: softmax(s + CAUSAL) @ v),
    "scores multiplied by the mask": ("mask", lambda s, v: softmax(s * CAUSAL) @ v),
    "a softmax over the queries": ("softmax", lambda s, v: softmax(np.where(CAUSAL, s, -1e30), -2) @ v),
    "no known mistake": ("output", lambda s, v: softmax(np.where(CAUSAL, s, -1e30)) @ v + 0.01),
}


@pytest.mark.parametrize("words", WRONG)
def test_wrong_functions_are_named(words, arrays):
    """Usual mistakes in a function written by hand, and one that has no name."""
    q, k, v = arrays
    check, wrong = WRONG[words]
    each = np.arange(4) // 2
    out = wrong(q @ k[each].swapaxes(1, 2) / 4, v[each]).astype(np.float32)

    found = alarms_of(q, k, v, out, mask=rg.causal())

    assert [finding.check for finding in found] == [check] and words in found[0].measured


@pytest.mark.parametrize("size", [0.1, 1.0, 3.0])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_the_noise_of_a_dtype_is_no_mistake_and_hides_none(dtype, size, arrays):
    """torch's own attention in each dtype is silent with scores from small to large; a scale of half too much is found
    where the dtype can tell.
    """
    q, k, v = arrays[0] * size, *(part[[0, 0, 1, 1]] for part in arrays[1:])
    given = [torch.from_numpy(part).to(getattr(torch, dtype)) for part in (q, k, v)]
    for factor in (1.0, 1.5):
        out = sdpa(*(part[None] for part in given), is_causal=True, scale=factor / 4)[0]
        host = [part.double().numpy().astype(FLOATS[dtype].numpy) for part in (*given, out)]
        found = [finding.check for finding in alarms_of(*host, mask=rg.causal())]

        if factor == 1 or (size == 1 and dtype != "bfloat16"):
            assert found == ["scale"] * (factor > 1)


def test_one_wrong_head_is_placed(arrays):
    """A mistake in a single head names that head, and the first row that shows it."""
    q, k, v = arrays
    out = rg.attention(q, k, v, mask=rg.causal())
    out[2] = rg.attention(q, k, v)[2]

    found = alarms_of(q, k, v, out, mask=rg.causal())

    assert [(finding.check, finding.head, finding.row) for finding in found] == [("mask", 2, 0)]


def test_what_was_not_kept_is_not_judged(arrays):
    """Without values and outputs the checks that need them are skipped, and say so."""
    q, k, _ = arrays

    results = list(checks(run_of(call_of(q, k, None, None))))

    assert alarms(results) == []
    assert {"output", "mask", "dead"} <= checked(each for each in results if isinstance(each, Skipped))
    assert checked(results) == {each.name for each in selected(RunCheck, names_of_checks())}


def test_arguments_that_never_reached_the_call(arrays):
    """A softcap, sinks or a bias that the layers have but a call does not get are named, unless they make no
    difference.
    """
    noted, cap = {"notes": {"softcap": 5.0}}, {"score": rg.softcap(5.0)}
    biased = {"score": rg.bias(normal(4, 24, 24))}
    module = torch.nn.Module()
    module.attention = torch.nn.Module()
    module.attention.sinks = torch.nn.Parameter(torch.ones(4))

    def found(*calls, module=None):
        run = run_of(*(call_of(*arrays, rg.attention(*arrays, **rules), **rules, **more) for rules, more in calls))
        return [(found.check, found.severity, found.call) for found in alarms(checks(run, module))]

    assert found(({}, noted)) == [("softcap", "fault", 0)]
    assert found(({}, {"notes": {"softcap": 1e9}})) == found((cap, noted)) == []
    assert found(({}, {}), module=module) == [("sinks", "fault", 0)]
    assert found(({"sinks": np.ones((4, 1))}, {}), module=module) == []

    first = biased, {"name": "layers.0.attention"}
    assert found(first, ({}, {"name": "layers.1.attention"})) == [("bias", "warning", 1)]
    assert found(first, ({}, {"name": "cross.1.attention"})) == []


@pytest.mark.parametrize("dtype", ["nope", 5, "torch.bool"])
def test_notes_that_name_no_dtype(dtype, arrays):
    """An unknown dtype in the notes of a run from elsewhere does not stop the audit."""
    q, k, v = arrays
    run = run_of(call_of(q, k, v, rg.attention(q, k, v).astype(np.float32), notes={"dtype": dtype}))

    assert alarms(checks(run)) == []


def test_eight_bits_are_no_fault(arrays):
    """Attention on numbers of 8 bits, whose outputs have 3 bits after the first, is within their rounding."""
    few = [part.astype(ml_dtypes.float8_e4m3fn) for part in arrays]
    few += [rg.attention(*(part.astype(np.float32) for part in few)).astype(ml_dtypes.float8_e4m3fn)]
    call = replace(call_of(*(part.astype(np.float32) for part in few)), **dict(zip(("q", "k", "v", "out"), few)))

    assert alarms(checks(run_of(call), None, ["output", "scale"])) == []


def test_audits_try_every_mistake_that_they_can_compute(arrays):
    """The mistakes with a check are tried; each changes only what is computed for the rows of a recorded call."""
    q, k, v = arrays
    calls = [
        call_of(q, k, v, None, mask=rg.causal() & rg.window(5)),
        call_of(q, k, v, None, score=rg.softcap(5.0), mask=rg.dense(normal(4, 24, 24) < 0)),
        call_of(q, k, v, None, score=rg.bias(normal(4, 24, 24)), scale=0.3),
        call_of(q[:, :7], k, v, None, sinks=normal(4, 1), mask=rg.causal()),
    ]
    known, tried = {each.name for each in CHECKS}, set()
    for call in calls:
        given = arguments_of(call)
        for mistake in SEEN:
            changed = mistake.change(given)
            tried |= set() if changed is None else {mistake.name}
            for field in ("inputs", "to_output", "finish", "backward", "recomputed"):
                assert changed is None or getattr(changed, field) is getattr(given, field), mistake.name

    assert all(set(mistake.checks) <= known for mistake in SEEN)
    assert tried == {mistake.name for mistake in SEEN} - {"alignment-bottom-right", "alignment-bottom-right-alone"}
