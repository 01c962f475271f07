"""Measured conventions, of right functions in any convention and of wrong ones, and what deviates from the declared."""

from dataclasses import fields, replace

import numpy as np
import pytest

import regard as rg
from regard.conformance.conventions.adapter_file import from_json, to_json
from regard.conformance.conventions.fields import CHOICES, Adapter
from regard.conformance.conventions.measure import FACTS, measure
from regard.conformance.conventions.parameters import Parameter
from regard.conformance.conventions.translate import prepare
from regard.laws.call import Answer
from regard.laws.expected import expected
from regard.laws.forward import forward, meaning
from regard.laws.mistakes import CATALOG
from tests.conformance.calls import random_call
from tests.conformance.implementations import right
from tests.conformance.sessions import Here
from tests.support.lanes import SWEEP, by_name

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


# ---- functions that are wrong, that take little, or that do not run --------------------------------------------------

NAMES = ["q", "k", "v", "mask", "bias", "causal", "window", "scale", "softcap", "sinks", "lengths", "return_lse"]


class Faulty:
    """A textbook function of NumPy with one mistake of the catalog. Other conventions raise, as its own code would."""

    def __init__(self, mistake):
        self.mistake = mistake
        self.parameters = tuple(Parameter(name=name, required=name in "qkv") for name in NAMES)

    def call(self, call, adapter):
        prepared = prepare(call, adapter, self.parameters)
        window = prepared.kwargs.get("window")
        other = (adapter.arrays, adapter.layout) != ("numpy", "BHSD") or adapter.mask == "additive"
        if other or isinstance(window, tuple) or call.dims["H"] % call.dims["G"] or call.dout is not None:
            return Answer(status="raised", words="TypeError")
        if window is not None:
            call = replace(call, window=(window - 1, 0))
        arguments = meaning(call, Adapter())
        wrong = None if self.mistake is None else self.mistake.change(arguments)
        found = forward(wrong or arguments, call.q, call.k, call.v)
        lse = found.lse if "return_lse" in prepared.kwargs else None
        return Answer(status="ok", out=found.out, lse=lse, dtype=str(call.dtype))


def conventions(adapter):
    """The conventions that are not those of the laws."""
    return {
        each.name
        for each in fields(Adapter)
        if each.name not in FACTS and getattr(adapter, each.name) != getattr(Adapter(), each.name)
    }


@pytest.mark.parametrize("mistake", [None, *CATALOG], ids=lambda each: "none" if each is None else each.name)
def test_no_mistake_becomes_a_convention_silently(mistake):
    """Whatever the mistake, each measured convention that is not that of the laws is reported."""
    faulty = Faulty(mistake)

    measured = measure(faulty, faulty.parameters)

    assert measured.runs
    assert conventions(measured.adapter) == {each.field for each in measured.deviations}
    if mistake is None:
        assert measured.deviations == () and not measured.unmeasured


def measured_of(function, adapter=None):
    """What is measured of a function in this process."""
    session = Here(function)
    return measure(session, session.parameters, adapter)


def textbook(q, k, v, mask=None, causal=False):
    """A right function."""
    scores = q @ k.swapaxes(-1, -2) / q.shape[-1] ** 0.5
    rows, keys = scores.shape[-2:]
    allowed = np.ones(scores.shape, bool) if mask is None else mask
    allowed = allowed & np.tri(rows, keys, keys - rows, dtype=bool) if causal else allowed
    powers = np.where(allowed, np.exp(scores), 0)
    total = powers.sum(-1, keepdims=True)
    return (powers / np.where(total == 0, 1, total) @ v).astype(q.dtype)


def only(condition):
    """The textbook function, which raises unless a condition holds."""

    def function(q, k, v, mask=None, causal=False):
        if not condition(q, k, v):
            raise ValueError("not supported")
        return textbook(q, k, v, mask, causal)

    return function


LIMITED = {
    "Q = K": (lambda q, k, v: q.shape == k.shape, {"causal"}),
    "D = E": (lambda q, k, v: k.shape == v.shape, set()),
    "D of 64": (lambda q, k, v: q.shape[-1] == v.shape[-1] == 64, {"causal"}),
    "as many heads": (lambda q, k, v: q.shape[1] == k.shape[1], set()),
    "one batch entry": (lambda q, k, v: q.ndim == 3, set()),
    "float64": (lambda q, k, v: q.dtype == np.float64, set()),
}


@by_name("condition, unmeasured", LIMITED)
def test_a_function_that_takes_little_is_measured_as_far_as_it_goes(condition, unmeasured):
    """What cannot be told is said, and is no deviation."""

    measured = measured_of(only(condition))

    assert measured.runs and measured.deviations == ()
    assert set(measured.unmeasured) == unmeasured


def test_the_dtypes_of_a_wrong_function_are_not_judged():
    """That float16 fails says nothing where float32 is as wrong; what is declared stays."""
    declared = Adapter(arrays="numpy", dtypes=("float32", "float16"), declared=("arrays", "dtypes"))

    measured = measured_of(lambda q, k, v: textbook(q + v.std(), k, v), declared)

    assert "dtypes" in measured.unmeasured and measured.adapter.dtypes == declared.dtypes
    assert "dtypes" not in {each.field for each in measured.deviations}


def raising(q, k, v):
    raise RuntimeError("never")


@pytest.mark.parametrize(
    "function", [lambda q, k, v: None, lambda q, k, v: "text", lambda q, k, v: np.zeros(7), raising]
)
def test_a_function_that_never_gives_an_output_does_not_run(function):
    """Its words say what came."""
    measured = measured_of(function, Adapter(arrays="numpy", declared=("arrays",)))

    assert not measured.runs and measured.words and measured.deviations == ()


def test_calls_that_hang_are_not_repeated():
    """After three calls without an answer nothing more is tried."""
    calls = []

    class Hanging:
        parameters = tuple(Parameter(name=name, required=True) for name in "qkv")

        def call(self, call, adapter):
            calls.append(call)
            return Answer(status="timeout", words="no answer within 10 s")

    assert not measure(Hanging(), Hanging.parameters).runs
    assert len(calls) == 3


def test_a_call_with_gradients_that_takes_too_long_is_not_taken_for_one_without():
    """As on a busy machine: the cases with gradients are judged."""
    pytest.importorskip("torch")

    class Slow(Here):
        def call(self, call, adapter):
            return Answer(status="timeout") if call.dout is not None else super().call(call, adapter)

    session = Slow(lambda q, k, v: rg.attention(q, k, v))
    assert measure(session, session.parameters, Adapter(arrays="torch")).adapter.gradients == "torch"


WRONG = [
    ({"layout": "BSHD"}, {"layout": "BHSD"}),
    ({"layout": "BHSD"}, {}),
    ({"causal": "top-left"}, {"causal": "bottom-right"}),
    ({"mask": "true-hides"}, {"mask": "true-attends"}),
    ({"scale": 0.25}, {"scale": None}),
    ({"empty_row": "nan"}, {"empty_row": "zero"}),
    ({"empty_row": "any"}, {}),
    ({"returns": ("out", "lse")}, {"returns": "out"}),
    ({"dtypes": ("float32", "bfloat16")}, {}),
    ({"arrays": "torch"}, {"arrays": "numpy"}),
    ({"gradients": "torch"}, {"gradients": "none"}),
    ({"mask_shapes": ("BK",)}, {"mask_shapes": None}),
    ({"always": ("causal",)}, {"always": ()}),
    ({"groups": "tile"}, {"groups": "none"}),
]


@pytest.mark.parametrize(("declared", "deviates"), WRONG, ids=str)
def test_what_is_declared_and_not_so_is_a_deviation(declared, deviates):
    """Each wrong field alone, with the measured value, also if it is a fact that no law prescribes."""
    measured = measured_of(textbook, Adapter(**declared, declared=tuple(declared)))

    assert {each.field for each in measured.deviations} == set(deviates)
    for each in measured.deviations:
        assert each.words.startswith("declared: ")
        if deviates[each.field] is not None:
            assert each.measured == deviates[each.field]
    assert measured_of(textbook, replace(measured.adapter, expected={})).deviations == ()


def test_an_unconfirmed_adapter_confirms_only_what_it_lists():
    """confirmed may be true, false, or the fields that were read."""

    def function(q, k, v, mask=None):
        return textbook(q * q.dtype.type(q.shape[-1] ** 0.5), k, v, None if mask is None else ~mask)

    found = measured_of(function)
    assert {each.field for each in found.deviations} == {"mask", "scale"}
    for confirmed, left in ((False, {"mask", "scale"}), (("mask",), {"scale"}), (True, set())):
        again = measured_of(function, replace(found.adapter, confirmed=confirmed))
        assert {each.field for each in again.deviations} == left


def test_a_fixed_scale_is_told_from_the_usual_one_that_equals_it_at_one_depth():
    """Calls of two depths tell them apart."""
    (found,) = measured_of(lambda q, k, v: textbook(q * q.dtype.type(0.5 * q.shape[-1] ** 0.5), k, v)).deviations

    assert (found.field, found.measured) == ("scale", 0.5)


def test_one_number_of_a_window_may_say_nothing_about_later_keys():
    """Windows that only cut what is before, with a causal mask or without, are those of the laws."""

    def function(q, k, v, causal=False, sliding_window=None):
        rule = rg.key <= rg.query if causal else rg.key >= 0
        rule = rule if sliding_window is None else rule & (rg.key > rg.query - int(sliding_window))
        return rg.attention(q, k, v, mask=rule, engine="reference")

    measured = measured_of(function)
    assert measured.adapter.window == "self-included" and measured.deviations == () and not measured.unmeasured


def test_a_parameter_that_swallows_arguments_is_no_feature():
    """A function with **kwargs is called without what it does not name."""

    def function(q, k, v, **kwargs):
        assert not kwargs
        return textbook(q, k, v)

    assert measured_of(function).deviations == ()
