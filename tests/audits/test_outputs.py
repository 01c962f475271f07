"""What the output of a call alone says about it: usual mistakes are named, and what a dtype rounds is none."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import regard as rg
from regard.audits import checks as audit_checks
from regard.audits.finding import Skipped
from regard.audits.run_checks.diagnosis import SEEN, arguments_of
from tests.support import import_graph
from tests.support.runs import CAUSAL, alarms, call_of, checks, run_of, softmax


def heads_and_rows(out):
    return out.swapaxes(0, 1).reshape(out.shape)


WRONG = {
    "a mask that is applied after the softmax": ("mask", lambda s, v: (softmax(s) * CAUSAL) @ v),
    "a mask added as numbers 0 and 1": ("mask", lambda s, v: softmax(s + CAUSAL) @ v),
    "scores multiplied by the mask": ("mask", lambda s, v: softmax(s * CAUSAL) @ v),
    "a softmax over the queries": ("softmax", lambda s, v: softmax(np.where(CAUSAL, s, -1e30), -2) @ v),
    "other heads (1 in place of 0": ("heads", lambda s, v: (softmax(np.where(CAUSAL, s, -1e30)) @ v)[[1, 0, 3, 2]]),
    "the head axis and the row axis swapped": (
        "heads",
        lambda s, v: heads_and_rows(softmax(np.where(CAUSAL, s, -1e30)) @ v),
    ),
    "no known mistake": ("output", lambda s, v: softmax(np.where(CAUSAL, s, -1e30)) @ v + 0.01),
}


@pytest.mark.parametrize("words", WRONG)
def test_wrong_functions_are_named(words, arrays):
    """Usual mistakes in a function written by hand, and one that has no name."""
    q, k, v = arrays
    check, wrong = WRONG[words]
    each = np.arange(4) // 2
    out = wrong(q @ k[each].swapaxes(1, 2) / 4, v[each]).astype(np.float32)

    found = alarms(checks(run_of(call_of(q, k, v, out, mask=rg.causal()))))

    assert [finding.check for finding in found] == [check] and words in found[0].measured


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_the_noise_of_a_dtype_is_no_mistake_and_hides_none(dtype, arrays):
    """torch's own attention in each dtype is silent with scores from small to large; a scale of 5 % too much is found
    where the dtype can tell.
    """
    import ml_dtypes

    for size in (0.1, 1.0, 3.0):
        q, k, v = (
            torch.from_numpy(part).to(getattr(torch, dtype))
            for part in (arrays[0] * size, arrays[1][[0, 0, 1, 1]], arrays[2][[0, 0, 1, 1]])
        )
        kind = ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype

        def alarmed(factor, q=q, k=k, v=v, kind=kind):
            right = torch.nn.functional.scaled_dot_product_attention(
                q[None], k[None], v[None], is_causal=True, scale=factor / 4
            )[0]
            host = [
                part.float().numpy().astype(kind) if dtype != "float64" else part.numpy() for part in (q, k, v, right)
            ]
            return [finding.check for finding in alarms(checks(run_of(call_of(*host, mask=rg.causal()))))]

        assert alarmed(1.0) == []
        if size == 1.0 and dtype.startswith("float"):
            assert alarmed(1.5) == ["scale"]


def test_one_wrong_head_is_placed(arrays):
    """A mistake in a single head names that head, and the first row that shows it."""
    q, k, v = arrays
    out = rg.attention(q, k, v, mask=rg.causal())
    out[2] = rg.attention(q, k, v)[2]

    found = alarms(checks(run_of(call_of(q, k, v, out, mask=rg.causal()))))

    assert [(finding.check, finding.head, finding.row) for finding in found] == [("mask", 2, 0)]


def test_what_was_not_kept_is_not_judged(arrays):
    """Without values and outputs the checks that need them are skipped, and say so."""
    q, k, _ = arrays

    results = list(checks(run_of(call_of(q, k, None, None))))

    assert alarms(results) == [] and {"output", "mask", "dead"} <= {
        each.check for each in results if isinstance(each, Skipped)
    }
    assert {each.check for each in results} == {
        each.name for each in audit_checks.select_run_checks(audit_checks.names())
    }


def test_arguments_that_never_reached_the_call(arrays):
    """A softcap, sinks or a bias that the layers have but a call does not get are named, unless they make no
    difference.
    """
    q, k, v = arrays
    each = np.arange(4) // 2
    scores, bias = q @ k[each].swapaxes(1, 2) / 4, np.random.default_rng(1).standard_normal((4, 24, 24), np.float32)
    out = softmax(scores) @ v[each]
    layer = torch.nn.ModuleDict({"attention": torch.nn.Module()})
    layer["attention"].sinks = torch.nn.Parameter(torch.ones(4))

    def found(*calls, module=None):
        return [(found.check, found.severity, found.call) for found in alarms(checks(run_of(*calls), module))]

    assert found(call_of(q, k, v, out, notes={"softcap": 5.0})) == [("softcap", "fault", 0)]
    assert found(call_of(q, k, v, out, notes={"softcap": 1e9})) == []
    assert (
        found(
            call_of(q, k, v, softmax(5 * np.tanh(scores / 5)) @ v[each], score=rg.softcap(5.0), notes={"softcap": 5.0})
        )
        == []
    )
    assert found(call_of(q, k, v, out), module=layer) == [("sinks", "fault", 0)]

    biased = call_of(q, k, v, softmax(scores + bias) @ v[each], score=rg.bias(bias), name="layers.0.attention")
    assert found(biased, call_of(q, k, v, out, name="layers.1.attention")) == [("bias", "warning", 1)]
    assert found(biased, call_of(q, k, v, out, name="cross.1.attention")) == []


@pytest.mark.parametrize("dtype", ["nope", 5, "int8", "torch.bool"])
def test_notes_that_name_no_dtype(dtype, arrays):
    """An unknown dtype in the notes of a run from elsewhere does not stop the audit."""
    q, k, v = arrays
    run = run_of(call_of(q, k, v, rg.attention(q, k, v).astype(np.float32), notes={"dtype": dtype}))

    assert alarms(checks(run)) == []


def test_eight_bits_are_no_fault(arrays):
    """Attention on numbers of 8 bits, whose outputs have 3 bits after the first, is within their rounding."""
    import ml_dtypes

    q, k, v = (part.astype(ml_dtypes.float8_e4m3fn) for part in arrays)
    out = rg.attention(*(part.astype(np.float32) for part in (q, k, v))).astype(ml_dtypes.float8_e4m3fn)
    call = call_of(*(part.astype(np.float32) for part in (q, k, v, out)))

    assert alarms(checks(run_of(replace(call, q=q, k=k, v=v, out=out)), None, ["output", "scale"])) == []


def test_known_mistakes_do_not_depend_on_recordings():
    """Known mistakes change arguments, so that they apply to any attention, not only to a recorded one: nothing of the
    catalog and of the law that it changes needs the lens or the audits.
    """
    files = import_graph.modules()
    room = "regard.conformance"
    mine = [name for name in files if name.startswith((f"{room}.law", f"{room}.mistakes"))]
    found = {each.module for name in mine for each in import_graph.imports(name, files)}

    assert f"{room}.mistakes.catalog" in mine
    assert all(name.startswith(("regard.conformance.", "regard.language.", "regard.common.")) for name in found)


def test_audits_try_every_mistake_that_they_can_compute(arrays):
    """The mistakes with a check are tried; each changes only what is computed for the rows of a recorded call."""
    q, k, v = arrays
    rng = np.random.default_rng(0)
    calls = [
        call_of(q, k, v, None, mask=rg.causal() & rg.window(5)),
        call_of(q, k, v, None, score=rg.softcap(5.0), mask=rg.dense(rng.random((4, 24, 24)) < 0.5)),
        call_of(q, k, v, None, score=rg.bias(rng.standard_normal((4, 24, 24))), scale=0.3),
        call_of(q[:, :7], k, v, None, sinks=rng.standard_normal((4, 1)), mask=rg.causal()),
    ]
    known, tried = {each.name for each in audit_checks.CHECKS}, set()
    for call in calls:
        given = arguments_of(call)
        for mistake in SEEN:
            changed = mistake.change(given)
            tried |= set() if changed is None else {mistake.name}
            for field in ("inputs", "to_output", "finish", "backward", "recomputed"):
                assert changed is None or getattr(changed, field) is getattr(given, field), mistake.name

    assert all(set(mistake.checks) <= known for mistake in SEEN)
    assert tried == {mistake.name for mistake in SEEN} - {"alignment-bottom-right", "alignment-bottom-right-alone"}
