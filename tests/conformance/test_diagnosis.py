"""The diagnosis: which mistakes are named for the answers of a function."""

from dataclasses import replace

import numpy as np
import pytest

from regard.conformance.conventions.fields import Adapter
from regard.laws.call import Answer, Call
from regard.laws.expected import expected
from regard.laws.explain import EFFORT, explain
from regard.laws.mistakes import of_name
from regard.laws.mistakes.scores import scaled
from regard.laws.observed import ObservedAnswer
from regard.laws.probes import Probe, answer_of

ADAPTER = Adapter()


def calls(count, seed=0, dtype=np.float32):
    """Random small calls that pass various arguments."""
    rng = np.random.default_rng(seed)
    for number in range(count):
        B, G, shared, Q, K = (int(size) for size in rng.integers((1, 1, 1, 2, 3), (3, 3, 3, 6, 7)))
        H = G * shared

        def normal(*shape):
            return rng.standard_normal(shape).astype(dtype)

        given = (
            {},
            {"causal": True},
            {"mask": rng.random((B, H, Q, K)) < 0.6},
            {"causal": True, "mask": rng.random((B, 1, Q, K)) < 0.7},
            {"causal": True, "window": (1, 0)},
            {"lengths": rng.integers(1, K + 1, B)},
            {"scale": 0.3},
            {"bias": normal(1, H, Q, K)},
            {"softcap": 1.1},
            {"sinks": normal(H)},
        )[number % 10]
        yield Call(q=normal(B, H, Q, 6), k=normal(B, G, K, 6), v=normal(B, G, K, 6), **given)


def observed(id, call, answer, conventions=ADAPTER):
    """What the search is given: an answer with the bounds of a right one."""
    bounds = expected(call, conventions).bounds
    return ObservedAnswer(id, call, answer, conventions, {"out": bounds.out, "lse": bounds.lse})


def answered(call, *mistakes, noise=0.0, conventions=ADAPTER, id="", **changes):
    """The answer with these mistakes, with some share of the bound as noise, and whether it is right."""
    right, answer = expected(call, ADAPTER), answer_of(mistakes, Probe("", "", call))
    bound = np.where(np.isfinite(right.bounds.out), right.bounds.out, 0)
    signs = np.random.default_rng(0).choice([-1, 1], bound.shape)
    out = (answer.out + noise * signs * bound).astype(call.dtype).astype(np.float64)
    answer = replace(answer, out=out, **changes)
    return observed(id, call, answer, conventions), right.judge(answer).right


def split(calls, *mistakes, **more):
    """(failing, passing) observations of a function with these mistakes."""
    seen = [answered(call, *mistakes, id=str(number), **more) for number, call in enumerate(calls)]
    return [each for each, good in seen if not good], [each for each, good in seen if good]


def moved(seen, size):
    """The same with another output."""
    return observed(seen.id, seen.call, replace(seen.answer, out=seen.answer.out + size), seen.conventions)


COMMON = (
    *("scale-missing", "scale-1/D", "mask-ignored", "mask-inverted", "causal-off-by-one", "causal-hides-own-key"),
    *("alignment-top-left", "groups-tiled", "mask-after-softmax", "keys-as-values", "lse-base-2", "sinks-ignored"),
    *("softcap-ignored", "bias-ignored", "padding-ignored", "window-longer-by-one", "softmax-over-queries"),
    *("mask-ignored-when-causal", "causal-ignored-when-mask", "heads-split-without-transpose", "window-ignored"),
)


@pytest.mark.spread
@pytest.mark.parametrize("name", COMMON)
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_a_mistake_is_named_in_calls_that_are_no_probes(name, dtype):
    """In random calls of every dtype, with rounding: the mistake is the first that is named, or equal to it there."""
    failed, passed = split(calls(40, seed=3, dtype=dtype), of_name(name), noise=0.4)

    found = explain(failed, passed)

    assert failed and name in {found[0].mistakes[0].name, *found[0].alike}


def test_what_no_mistake_explains_is_said():
    """Without failing cases there is no explanation. Cases with other numbers have one without mistakes, which lists
    them all: every mistake was tried, also those with arrays of other shapes inside.
    """
    failed, passed = split(calls(3), conventions=Adapter(empty_row="nan"))
    odd = [moved(seen, 0.1) for seen in passed]

    (found,) = explain(odd)

    assert failed == explain([], passed) == []
    assert found.mistakes == () and sorted(found.cases) == sorted(seen.id for seen in odd)


def test_calls_without_an_answer_are_listed_without_a_mistake():
    """A call that gave no numbers has no known mistake, and does not hide those of the others."""
    failed, passed = split(calls(10), of_name("scale-missing"))
    statuses = ("raised", "timeout", "crashed", "unreadable")
    lost = [observed(status, failed[0].call, Answer(status=status, words="no")) for status in statuses]

    known, unknown = explain([*failed, *lost], passed)

    assert known.mistakes == (of_name("scale-missing"),) and (unknown.mistakes, unknown.cases) == ((), statuses)


def test_mistakes_in_different_cases_are_separate_explanations():
    """A mask that is ignored and sinks that are ignored show in different calls, and are two explanations."""
    failed, passed = split(calls(40), of_name("padding-ignored"), of_name("sinks-ignored"))

    found = explain(failed, passed)

    assert {each.mistakes[0].name for each in found} == {"padding-ignored", "sinks-ignored"}
    assert sorted(case for each in found for case in each.cases) == sorted(seen.id for seen in failed)


def test_a_mistake_that_passing_cases_contradict_comes_second():
    """A call in which two mistakes are equal is explained by the one that agrees with the passing cases."""
    mistake = of_name("mask-ignored-when-causal")
    failed, passed = split(calls(40), mistake)

    first = explain(failed, passed)[0]

    assert first.mistakes == (mistake,) and not {"mask-ignored", "causal-alone"} & {*first.alike}


def test_a_scale_that_no_mistake_has_is_fitted():
    """The scale of a function may be any number: it is measured from one call, and explains the others."""
    tenth = scaled("scale-tenth", "", "", lambda arguments: 0.9 * arguments.scale)
    failed, passed = split(calls(40), tenth)

    first = explain(failed, passed)[0]

    assert first.mistakes[0].description == "a scale 0.9 times as large" and len(first.cases) == len(failed)


def test_declared_empty_rows_are_no_mistake():
    """Rows that a function declares to be NaN do not hide what else is wrong."""
    adapter = Adapter(empty_row="nan")
    failed, passed = split(calls(40), of_name("empty-row-nan"), of_name("scale-missing"), lse=None, conventions=adapter)

    assert explain(failed, passed)[0].mistakes == (of_name("scale-missing"),)


def effort(cases):
    """How many small forward passes a search has made; a thousand of them take a sixth of a second."""
    return sum(each.effort for each in cases)


def test_sixty_failing_cases_take_few_forward_passes():
    """The search is short, also for answers that no single mistake explains."""
    one, _ = split(calls(60), of_name("scale-halved"))
    two, _ = split(calls(60), of_name("scale-halved"), of_name("lse-base-2"))

    for cases, limit in ((one, 1000), (two, 1.1 * EFFORT)):
        found = explain(cases)
        assert len(cases) == 60 and 0 < effort(cases) < limit
        assert "scale-halved" in {mistake.name for mistake in found[0].mistakes}


def test_a_mistake_that_leaves_the_difference_is_not_named():
    """At extreme scores many laws give nearly the same output: a small error there has none of them as its cause."""
    failed = []
    for call in calls(3, seed=4):
        seen, _ = answered(replace(call, q=call.q * 3000), lse=None)
        failed.append(moved(seen, 1.5 * seen.bounds["out"]))
        assert not expected(seen.call, ADAPTER).judge(failed[-1].answer).right

    assert [each.mistakes for each in explain(failed)] == [()]


def test_unexplained_gradients_take_few_forward_passes():
    """Right results with gradients that no mistake explains: no other function is tried by finite differences."""
    rng, failed = np.random.default_rng(5), []
    for call in calls(12):
        seen, _ = answered(replace(call, dout=rng.standard_normal((*call.q.shape[:3], 6)).astype(np.float32)), lse=None)
        gradients = {role: rng.standard_normal(getattr(call, role).shape) for role in "qkv"}
        failed.append(observed("", seen.call, replace(seen.answer, gradients=gradients)))

    (found,) = explain(failed)

    assert found.mistakes == () and 0 < effort(failed) < EFFORT
