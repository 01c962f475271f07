"""The diagnosis: which mistakes are named for the answers of a function."""

from dataclasses import replace

import numpy as np
import pytest

from regard.conformance.call import Answer, Call
from regard.conformance.conventions.fields import Adapter
from regard.conformance.law.expected import expected
from regard.conformance.mistakes import diagnosis
from regard.conformance.mistakes.catalog import of_name
from regard.conformance.mistakes.diagnosis import explain
from regard.conformance.mistakes.probes import Probe
from regard.conformance.mistakes.trial import Observed, answer_of, mistaken

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


def answered(call, *mistakes, noise=0.0, **changes):
    """The answer with these mistakes, with some share of the bound as noise, and whether it is right."""
    right, answer = expected(call, ADAPTER), answer_of(mistaken(*mistakes), Probe("", "", call))
    bound = np.where(np.isfinite(right.bounds.out), right.bounds.out, 0)
    signs = np.random.default_rng(0).choice([-1, 1], bound.shape)
    out = (answer.out + noise * signs * bound).astype(call.dtype).astype(np.float64)
    answer = replace(answer, out=out, **changes)
    return Observed("", call, answer, right.bounds.out, right.bounds.lse), right.judge(answer).right


def split(calls, *mistakes, **more):
    """(failing, passing) observations of a function with these mistakes."""
    seen = [answered(call, *mistakes, **more) for call in calls]
    numbered = [(replace(each, id=str(number)), good) for number, (each, good) in enumerate(seen)]
    return [each for each, good in numbered if not good], [each for each, good in numbered if good]


def moved(seen, size):
    """The same with another output."""
    return replace(seen, answer=replace(seen.answer, out=seen.answer.out + size))


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

    found = explain(failed, passed, ADAPTER)

    assert failed and name in {found[0].mistakes[0].name, *found[0].alike}


@pytest.mark.parametrize("adapter", [ADAPTER, Adapter(empty_row="nan")], ids=["laws", "rows of NaN"])
def test_what_no_mistake_explains_is_said(adapter):
    """Without failing cases there is no explanation. Cases with other numbers have one without mistakes, which lists
    them all: every mistake was tried, also those with arrays of other shapes inside.
    """
    failed, passed = split(calls(3))
    odd = [moved(seen, 0.1) for seen in passed]

    (found,) = explain(odd, [], adapter)

    assert failed == explain([], passed, adapter) == []
    assert found.mistakes == () and sorted(found.cases) == sorted(seen.id for seen in odd)


def test_calls_without_an_answer_are_listed_without_a_mistake():
    """A call that gave no numbers has no known mistake, and does not hide those of the others."""
    failed, passed = split(calls(10), of_name("scale-missing"))
    statuses = ("raised", "timeout", "crashed", "unreadable")
    lost = [Observed(status, failed[0].call, Answer(status=status, words="no")) for status in statuses]

    known, unknown = explain([*failed, *lost], passed, ADAPTER)

    assert known.mistakes == (of_name("scale-missing"),) and (unknown.mistakes, unknown.cases) == ((), statuses)


def test_mistakes_in_different_cases_are_separate_explanations():
    """A mask that is ignored and sinks that are ignored show in different calls, and are two explanations."""
    failed, passed = split(calls(40), of_name("padding-ignored"), of_name("sinks-ignored"))

    found = explain(failed, passed, ADAPTER)

    assert {each.mistakes[0].name for each in found} == {"padding-ignored", "sinks-ignored"}
    assert sorted(case for each in found for case in each.cases) == sorted(seen.id for seen in failed)


def test_a_mistake_that_passing_cases_contradict_comes_second():
    """A call in which two mistakes are equal is explained by the one that agrees with the passing cases."""
    mistake = of_name("mask-ignored-when-causal")
    failed, passed = split(calls(40), mistake)

    first = explain(failed, passed, ADAPTER)[0]

    assert first.mistakes == (mistake,) and not {"mask-ignored", "causal-alone"} & {*first.alike}


def test_declared_empty_rows_are_no_mistake():
    """Rows that a function declares to be NaN do not hide what else is wrong."""
    adapter = Adapter(empty_row="nan")
    failed, passed = split(calls(40), of_name("empty-row-nan"), of_name("scale-missing"), lse=None)

    assert explain(failed, passed, adapter)[0].mistakes == (of_name("scale-missing"),)


@pytest.fixture
def effort(monkeypatch):
    """How many small forward passes the last diagnosis has made; a thousand of them take a sixth of a second."""
    made = []

    def kept(adapter, build=diagnosis.Trial):
        made.append(build(adapter))
        return made[-1]

    monkeypatch.setattr(diagnosis, "Trial", kept)
    return lambda: made[-1].effort


def test_sixty_failing_cases_take_few_forward_passes(effort):
    """The search is short, also for answers that no single mistake explains."""
    one, _ = split(calls(60), of_name("scale-halved"))
    two, _ = split(calls(60), of_name("scale-halved"), of_name("lse-base-2"))

    for cases, limit in ((one, 1000), (two, 1.1 * diagnosis.EFFORT)):
        found = explain(cases, [], ADAPTER)
        assert len(cases) == 60 and 0 < effort() < limit
        assert "scale-halved" in {mistake.name for mistake in found[0].mistakes}


def test_a_mistake_that_leaves_the_difference_is_not_named():
    """At extreme scores many laws give nearly the same output: a small error there has none of them as its cause."""
    failed = []
    for number, call in enumerate(calls(3, seed=4)):
        seen, _ = answered(replace(call, q=call.q * 3000), lse=None)
        failed.append(replace(moved(seen, 1.5 * seen.bound_out), id=str(number)))
        assert not expected(seen.call, ADAPTER).judge(failed[-1].answer).right

    assert [each.mistakes for each in explain(failed, [], ADAPTER)] == [()]


def test_unexplained_gradients_take_few_forward_passes(effort):
    """Right results with gradients that no mistake explains: no other function is tried by finite differences."""
    rng, failed = np.random.default_rng(5), []
    for number, call in enumerate(calls(12)):
        seen, _ = answered(replace(call, dout=rng.standard_normal((*call.q.shape[:3], 6)).astype(np.float32)), lse=None)
        gradients = {role: rng.standard_normal(getattr(call, role).shape) for role in "qkv"}
        failed.append(replace(seen, id=str(number), answer=replace(seen.answer, gradients=gradients)))

    (found,) = explain(failed, [], ADAPTER)

    assert found.mistakes == () and 0 < effort() < diagnosis.EFFORT
