"""The diagnosis: which mistakes are named for the answers of a function."""

from dataclasses import replace

import numpy as np
import pytest

from regard.conformance.call import Answer, Call
from regard.conformance.conventions.fields import Adapter
from regard.conformance.law.expected import expected
from regard.conformance.law.forward import forward, meaning
from regard.conformance.mistakes import diagnosis
from regard.conformance.mistakes.catalog import CATALOG, of_name
from regard.conformance.mistakes.diagnosis import Observed, explain

ADAPTER = Adapter()


def calls(count, seed=0, dtype=np.float32):
    """Random small calls that pass various arguments."""
    rng = np.random.default_rng(seed)
    for number in range(count):
        B, G, shared, Q, K = (int(size) for size in rng.integers((1, 1, 1, 2, 3), (3, 3, 3, 6, 7)))
        H = G * shared
        q, k, v = (rng.standard_normal(shape).astype(dtype) for shape in ((B, H, Q, 6), (B, G, K, 6), (B, G, K, 6)))
        given = (
            {},
            {"causal": True},
            {"mask": rng.random((B, H, Q, K)) < 0.6},
            {"causal": True, "mask": rng.random((B, 1, Q, K)) < 0.7},
            {"causal": True, "window": (1, 0)},
            {"lengths": rng.integers(1, K + 1, B)},
            {"scale": 0.3},
            {"bias": rng.standard_normal((1, H, Q, K)).astype(dtype)},
            {"softcap": 1.1},
            {"sinks": rng.standard_normal(H).astype(dtype)},
        )[number % 10]
        yield Call(q=q, k=k, v=v, **given)


def answered(call, *mistakes, noise=0.0, lse=True, seed=0):
    """The answer with these mistakes, with some share of the bound as noise."""
    right = expected(call, ADAPTER)
    arguments = meaning(call, ADAPTER)
    for mistake in mistakes:
        arguments = mistake.change(arguments) or arguments
    outcome = forward(arguments, call.q, call.k, call.v)
    signs = np.random.default_rng(seed).choice([-1, 1], outcome.out.shape)
    out = (outcome.out + noise * signs * np.where(np.isfinite(right.bounds.out), right.bounds.out, 0)).astype(
        call.dtype
    )
    answer = Answer(status="ok", out=out.astype(np.float64), lse=outcome.lse if lse else None)
    return Observed("", call, answer, right.bounds.out, right.bounds.lse), right.judge(answer).right


def split(calls, *mistakes, **more):
    """(failing, passing) observations of a function with these mistakes."""
    seen = [answered(call, *mistakes, **more) for call in calls]
    numbered = [(replace(each, id=str(number)), good) for number, (each, good) in enumerate(seen)]
    return [each for each, good in numbered if not good], [each for each, good in numbered if good]


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


def test_nothing_is_explained_where_nothing_fails():
    """Without failing cases there is no explanation."""
    failed, passed = split(calls(10))

    assert failed == [] and explain(failed, passed, ADAPTER) == []


def test_what_no_mistake_explains_is_said():
    """Cases with other numbers have an explanation without mistakes, which lists them all."""
    failed, passed = split(calls(10))
    odd = [replace(seen, answer=replace(seen.answer, out=seen.answer.out + 0.1)) for seen in passed]

    (found,) = explain(odd, [], ADAPTER)

    assert failed == [] and found.mistakes == () and sorted(found.cases) == sorted(seen.id for seen in odd)


@pytest.mark.parametrize("status", ["raised", "timeout", "crashed", "unreadable"])
def test_calls_without_an_answer_are_listed_without_a_mistake(status):
    """A call that gave no numbers has no known mistake, and does not hide those of the others."""
    failed, passed = split(calls(10), of_name("scale-missing"))
    lost = Observed("lost", failed[0].call, Answer(status=status, words="no"))

    found = explain([*failed, lost], passed, ADAPTER)

    assert [each.mistakes[0].name for each in found if each.mistakes] == ["scale-missing"]
    assert [each.cases for each in found if not each.mistakes] == [("lost",)]


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

    assert explain(failed, passed, ADAPTER)[0].mistakes == (mistake,)
    assert not any(other in explain(failed, passed, ADAPTER)[0].alike for other in ("mask-ignored", "causal-alone"))


def test_declared_empty_rows_are_no_mistake():
    """Rows that a function declares to be NaN do not hide what else is wrong."""
    adapter = Adapter(empty_row="nan")
    failed, passed = split(calls(40), of_name("empty-row-nan"), of_name("scale-missing"), lse=False)

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
    two = [answered(call, of_name("scale-halved"), of_name("lse-base-2")) for call in calls(60)]
    failed = [replace(seen, id=str(number)) for number, (seen, good) in enumerate(two) if not good]
    one, _ = split(calls(60), of_name("scale-halved"))
    assert len(one) == len(failed) == 60

    for cases, limit in ((one, 1000), (failed, 1.1 * diagnosis.EFFORT)):
        found = explain(cases, [], ADAPTER)
        assert 0 < effort() < limit
        assert "scale-halved" in {mistake.name for mistake in found[0].mistakes}


def test_names_of_the_catalog_are_what_explanations_hold():
    """Explanations hold entries of the catalog, and names of others."""
    failed, passed = split(calls(20), of_name("causal-hides-own-key"))

    for each in explain(failed, passed, ADAPTER):
        assert all(mistake in CATALOG for mistake in each.mistakes)
        assert all(name in {mistake.name for mistake in CATALOG} for name in each.alike if " + " not in name)


def test_a_mistake_that_leaves_the_difference_is_not_named():
    """At extreme scores many laws give nearly the same output: a small error there has none of them as its cause."""
    rng = np.random.default_rng(4)
    failed = []
    for number in range(6):
        q, k, v = (rng.standard_normal((1, 2, 4, 6)).astype(np.float32) for _ in range(3))
        call = Call(q=q * 3000, k=k, v=v)
        seen, _ = answered(call, lse=False)
        odd = replace(seen.answer, out=seen.answer.out + 1.5 * seen.bound_out)
        failed.append(replace(seen, id=str(number), answer=odd))
        assert not expected(call, ADAPTER).judge(odd).right

    assert [each.mistakes for each in explain(failed, [], ADAPTER)] == [()]


@pytest.mark.one_in(3)
@pytest.mark.parametrize("empty_row", ["nan", "mean", "any"])
def test_every_mistake_is_tried_under_every_declared_empty_row(empty_row):
    """Also those with arrays of other shapes inside: what nothing explains has an explanation without mistakes."""
    adapter = Adapter(empty_row=empty_row)
    rng = np.random.default_rng(6)
    q, k, v = (rng.standard_normal((2, 4, 6, 5)).astype(np.float32) for _ in range(3))
    for mask in (None, rng.random((2, 4, 6, 6)) < 0.3):
        seen, _ = answered(Call(q=q, k=k, v=v, mask=mask))
        odd = replace(seen, id="odd", answer=replace(seen.answer, out=seen.answer.out + 0.1))

        assert [each.mistakes for each in explain([odd], [], adapter)] == [()]


def test_unexplained_gradients_take_few_forward_passes(effort):
    """Right results with gradients that no mistake explains: no other function is tried by finite differences."""
    rng = np.random.default_rng(5)
    failed = []
    for number in range(12):
        q, k, v, dout = (rng.standard_normal((2, 3, 8, 8)).astype(np.float32) for _ in range(4))
        call = Call(q=q, k=k, v=v, dout=dout, causal=number % 2 == 0)
        seen, _ = answered(call, lse=False)
        gradients = {role: rng.standard_normal(part.shape) for role, part in (("q", q), ("k", k), ("v", v))}
        failed.append(replace(seen, id=str(number), answer=replace(seen.answer, gradients=gradients)))

    (found,) = explain(failed, [], ADAPTER)

    assert found.mistakes == () and 0 < effort() < diagnosis.EFFORT
