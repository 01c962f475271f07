"""Measured conventions, of right functions in any convention and of wrong ones, and what deviates from the declared."""

from dataclasses import replace

import numpy as np
import pytest

from regard.conformance.conventions.adapter_file import from_json, to_json
from regard.conformance.conventions.fields import CHOICES, Adapter
from regard.conformance.conventions.measure import FACTS, measure
from regard.laws.expected import expected
from tests.conformance.calls import random_call
from tests.conformance.implementations import right
from tests.conformance.sessions import Here
from tests.support.lanes import SWEEP

# Fields that are told by calls, if the function has what they are about.
ROLES = {"mask": ("mask",), "causal": ("causal",), "window": ("window", "window_before")}


def told(adapter):
    """The fields of an adapter that calls can tell."""
    names = adapter.parameters
    yield from ("arrays", "layout", "always", "scale", "returns")
    if adapter.layout != "SD":
        yield "groups"
    yield from (name for name, roles in ROLES.items() if any(role in names for role in roles))
    causal = ("causal" in names or adapter.always) and adapter.causal == "bottom-right"
    window = "window" in names or "window_before" in names
    has_empty_rows = "mask" in names or "lengths" in names or causal or window
    if adapter.always and "causal" not in names:
        yield "causal"
    keyless = adapter.layout == "THD" and not has_empty_rows  # entries without keys say less
    if has_empty_rows or (keyless and adapter.empty_row == "nan"):
        yield "empty_row"
    if "lse" in adapter.returns:
        yield from ("lse", *(["empty_lse"] if has_empty_rows or (keyless and adapter.empty_lse == "inf") else []))
        if adapter.layout not in ("HSD", "SD"):  # without a batch, some of these are the same
            yield "lse_layout"
    if "softcap" in names and ("bias" in names or ("mask" in names and adapter.mask == "additive")):
        yield "softcap"


def assert_measured(rng, layout=None):
    """All conventions of a right function are found, and after confirmation nothing deviates and calls agree."""
    function, adapter = right(rng, layout)
    session = Here(function)
    declared = measure(session, session.parameters, adapter)
    assert declared.runs and declared.deviations == (), (declared.deviations, adapter)

    measured = measure(session, session.parameters, Adapter(parameters=adapter.parameters))
    assert measured.runs, (measured.words, adapter)
    for name in told(adapter):
        if name not in measured.unmeasured:
            got, wanted = getattr(measured.adapter, name), getattr(adapter, name)
            assert got == wanted or (name == "scale" and np.isclose(got, wanted)), (name, got, wanted, adapter)
    # Fields that cannot be told are exceptions, not the rule.
    assert len(measured.unmeasured) <= 1, (measured.unmeasured, adapter)

    usual = replace(Adapter(), window="left-right") if measured.adapter.window == "left-right" else Adapter()
    differ = {name for name in told(adapter) if name not in FACTS and getattr(adapter, name) != getattr(usual, name)}
    differ -= set() if adapter.layout in ("BSHD", "SBHD") else {"layout"}
    differ -= {*measured.unmeasured, *(["groups"] if adapter.groups == "none" else [])}
    assert {each.field for each in measured.deviations} == differ

    confirmed = from_json(to_json(replace(measured.adapter, confirmed=True)))
    assert measure(session, session.parameters, confirmed).deviations == ()
    unconfirmed = from_json(to_json(replace(measured.adapter, confirmed=False)))
    assert {each.field for each in measure(session, session.parameters, unconfirmed).deviations} == differ
    for _ in range(2):
        call = random_call(rng, confirmed)
        answer = session.call(call, confirmed)
        assert answer.status == "ok" and expected(call, confirmed).judge(answer).right


@pytest.mark.one_in(2)
@pytest.mark.parametrize("layout", CHOICES["layout"])
def test_all_conventions_of_right_functions_are_found(layout):
    """Every convention is found by calls alone; what is declared and confirmed does not deviate."""
    for seed in range(80 if SWEEP else 8):
        assert_measured(np.random.default_rng([seed, CHOICES["layout"].index(layout)]), layout)


@pytest.mark.parametrize("seed", range(6))
def test_what_there_was_no_time_to_measure_is_no_deviation(seed, monkeypatch):
    """A right function that is slow, so that measuring stops anywhere, keeps what it declares."""
    function, adapter = right(np.random.default_rng(seed))
    session = Here(function)
    for calls in range(2, 40, 3):
        clock = iter([0.0] * (calls + 1))
        monkeypatch.setattr("regard.conformance.conventions.probe.now", lambda clock=clock: next(clock, 1e9))
        measured = measure(session, session.parameters, adapter)
        assert measured.deviations == (), (calls, measured.deviations)
        if measured.runs:
            for name in ("mask_shapes", "dtypes", "gradients"):
                assert getattr(measured.adapter, name) == getattr(adapter, name), (calls, name)
