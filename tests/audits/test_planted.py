"""Every mistake that is planted into a layer is found and named, there; the healthy twin is silent."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import regard as rg
from regard.audits.finding import Finding, Passed
from regard.lens.look import look
from tests.support.engines import normal
from tests.support.runs import alarms, alarms_of, call_of, checks, run_of
from tests.support.small_model import tiny, words

CAUSAL, WINDOW = rg.causal(), rg.causal() & rg.window(4)
SOFTCAP, BIAS = rg.softcap(1.0), rg.bias(normal(4, 24, 24))


def masks(given, computed):
    return {"mask": given}, {"mask": computed}


def tiled(q, k, v):
    return q, np.tile(k, (2, 1, 1)), np.tile(v, (2, 1, 1))


def next_head(q, k, v):
    return q, k, v[::-1]


# What a call is given, what it computes with instead (rules, or other arrays), the check that finds it, and its words.
PLANTED = {
    "scale left out": ({}, {"scale": 1.0}, "scale", "no scale"),
    "scale doubled": ({}, {"scale": 2 / 4}, "scale", "twice the scale"),
    "scale inverted": ({}, {"scale": 4.0}, "scale", "scale √D"),
    "root forgotten": ({}, {"scale": 1 / 16}, "scale", "applied twice"),
    "some other scale": ({}, {"scale": 1.3 / 4}, "scale", "1.3 times as large"),
    "mask ignored": (*masks(CAUSAL, None), "mask", "no mask at all"),
    "sees the next token": (*masks(CAUSAL, rg.key <= rg.query + 1), "mask", "one key more on the right"),
    "inverted mask": (*masks(CAUSAL, rg.key > rg.query), "mask", "inverted"),
    "window one too short": (*masks(WINDOW, rg.causal() & rg.window(3)), "mask", "one key less on the left"),
    "window ignored": (*masks(WINDOW, CAUSAL), "mask", "a causal mask alone"),
    "padding forgotten": (*masks(CAUSAL & (rg.key >= 4), CAUSAL), "mask", "a causal mask alone"),
    "heads tiled": ({}, tiled, "groups", "mod 2"),
    "values of the next head": ({}, next_head, "heads", "v of the next head"),
    "softcap dropped": ({"score": SOFTCAP}, {"score": None}, "softcap", "without the softcap"),
    "sinks dropped": ({"sinks": np.ones((4, 1))}, {"sinks": None}, "sinks", "without its sinks"),
    "bias dropped": ({"score": BIAS}, {"score": None}, "bias", "without the bias"),
}


@pytest.mark.parametrize("planted", PLANTED)
def test_a_planted_mistake_is_found_named_and_placed(planted, arrays):
    """One call that does something else than its arguments specify is a fault of that call alone, by the name of the
    mistake; the same call without it is silent.
    """
    rules, wrong, check, measured = PLANTED[planted]
    right = rg.attention(*arrays, **rules)
    out = rg.attention(*wrong(*arrays), **rules) if callable(wrong) else rg.attention(*arrays, **rules | wrong)

    found = alarms(checks(run_of(call_of(*arrays, right, **rules), call_of(*arrays, out, **rules))))

    assert [(finding.check, finding.severity, finding.call) for finding in found] == [(check, "fault", 1)]
    assert measured in found[0].measured and found[0].where.startswith("call 1 (")


def test_two_mistakes_at_once_are_both_named(arrays):
    """A call without scale and mask is found by both checks."""

    found = alarms_of(*arrays, rg.attention(*arrays, scale=1.0), mask=CAUSAL)

    assert {finding.check for finding in found} == {"scale", "mask"}
    assert all("no mask at all" in finding.measured for finding in found)


def test_a_mask_aligned_at_the_wrong_end(arrays):
    """Three new rows over a cache: a mask that begins at the top left is a matter of alignment."""
    q, k, v = arrays[0][:, 21:], *arrays[1:]

    (found,) = alarms_of(q, k, v, rg.attention(q, k, v, mask=rg.key <= rg.query - 21), mask=CAUSAL)

    assert found.check == "alignment" and "top left" in found.measured


def test_the_first_nan_is_placed():
    """A NaN weight shows first in what it makes; what follows is only counted."""
    model = tiny("llama")
    model.set_attn_implementation("sdpa")
    with torch.no_grad():
        model.model.layers[1].self_attn.v_proj.weight[3] = torch.nan
    found = alarms(checks(look(model, inputs={"input_ids": words()}), model))

    assert [(finding.check, finding.call, finding.numbers["array"]) for finding in found] == [("numbers", 1, "v")]


def test_what_ran_and_what_never_arrived():
    """A layer set to one implementation that runs another is noted; layers of which no call was seen are a warning."""
    model = tiny("llama")
    model.set_attn_implementation("sdpa")
    run = look(model, inputs={"input_ids": words()})
    model.set_attn_implementation("eager")
    after = [found for found in checks(run, model, ["implementation"]) if isinstance(found, Finding)]
    fewer = replace(run, calls=run.calls[:1])

    assert [(found.check, found.severity) for found in after] == [("implementation", "note")] * 2
    assert [found.check for found in alarms(checks(fewer, model))] == ["arrived"]
    assert [type(found) for found in checks(run, model, ["arrived"])] == [Passed]
