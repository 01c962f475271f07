"""The bounds on rounding: they accept every legitimate computation in a dtype, and little else."""

from dataclasses import replace

import numpy as np
import pytest

from bench.rounding.computations import VARIANTS, results
from bench.rounding.variants import call, spread
from regard.common.dtypes import FLOATS
from regard.conformance.conventions.fields import Adapter
from regard.laws.backward import backward
from regard.laws.bound import CONSTANTS, bound, compare, gradient_bounds
from regard.laws.call import Call
from regard.laws.expected import compared_gradients
from regard.laws.expected import expected as law_of
from regard.laws.forward import forward, meaning
from regard.laws.mistakes import CATALOG
from regard.laws.probes import answer_of, probes
from tests.support.lanes import by_name

EVERY = tuple(FLOATS)
every = pytest.mark.parametrize("dtype", EVERY)
INF, NAN = np.inf, np.nan


def judged(given):
    """The law of a call: arguments, expected results by name, and their bounds by name."""
    arguments = meaning(given, Adapter())
    outcome = forward(arguments, given.q, given.k, given.v)
    expected = dict(zip(("out", "lse", "weights"), outcome))
    bounds = bound(arguments, outcome, given)._asdict()
    if given.dout is not None:
        gradients = backward(arguments, given.q, given.k, given.v, given.dout, given.dlse)
        expected |= gradients
        bounds |= gradient_bounds(arguments, outcome, given, gradients)
    return arguments, outcome, expected, bounds


def stored(result, given):
    """As a function returns it."""
    with np.errstate(over="ignore"):
        return result.astype(given.dtype).astype(np.float64)


@pytest.mark.one_in(2)
@every
def test_every_legitimate_computation_is_accepted(dtype):
    """Orders and widths of sums, places of the scale, roundings: over random calls, with gradients."""
    for seed, keys in enumerate([4] * 10 + [64] * 10 + [300] * 2, 7000):
        given = call(seed, dtype, keys)
        arguments, outcome, expected, bounds = judged(given)
        for variant in VARIANTS:
            got = results(variant, arguments, outcome, given)
            for what, each in ({"out": got.out, "lse": got.lse, "weights": got.weights} | got.gradients).items():
                right, ratio, at = compare(each, expected[what], bounds[what])
                assert right, (variant.name, what, ratio, at, seed, given.uses())


@pytest.mark.sweep  # half a minute of random calls
def test_the_constants_are_what_is_needed():
    """Measured again on other calls, no constant is too small, and none is more than four times too large.

    That of sinks is compared with 0.42, the most that any call needed (`python -m bench.rounding.variants`):
    few calls have sinks, and their gradient is a sum over all rows, in which errors mostly cancel.
    """
    cases = [call(seed, dtype, keys) for dtype in EVERY for keys in (4, 64) for seed in range(8000, 8020)]
    cases += [call(seed, dtype, 512) for dtype in EVERY for seed in range(8000, 8003)]
    found = spread(cases)

    needed = {what: max(row[what] for row in found.values()) for what in CONSTANTS}
    enough = {what: 4 * max(each, 0.42 if what == "sinks" else 0) for what, each in needed.items()}
    wrong = [what for what, constant in CONSTANTS.items() if not needed[what] <= constant <= enough[what]]
    assert wrong == [], needed


def plain(dtype, **arguments):
    """A call with scores of about 1 and 64 keys."""
    rng = np.random.default_rng(5)

    def array(*shape):
        return rng.standard_normal(shape).astype(np.float32).astype(FLOATS[dtype].numpy)

    drawn = {name: array(2, 2, 64 if name in "kv" else 5, 16) for name in ("q", "k", "v")}
    return Call(**drawn | {"dout": array(2, 2, 5, 16), "dlse": array(2, 2, 5)} | arguments)


def one_key_missing(given):
    return replace(given, lengths=np.array([63, 63]))


def scale_off(share):
    return lambda given: replace(given, scale=given.q.shape[-1] ** -0.5 * (1 + share))


# The dtypes in which a small error is more than rounding may be.
SMALL = {
    "one key of 64 missing": (one_key_missing, EVERY),
    "scale off by 1 %": (scale_off(0.01), ("float64", "float32", "float16")),
    "scale off by 20 %": (scale_off(0.2), EVERY),
    "scale off by a millionth": (scale_off(1e-6), ("float64",)),
}


@by_name("change, rejected", SMALL)
@every
def test_a_small_error_is_rejected_where_it_is_more_than_rounding(change, rejected, dtype):
    given = plain(dtype)
    _, _, expected, bounds = judged(given)
    _, _, wrong, _ = judged(change(given))

    right = all(compare(stored(wrong[what], given), expected[what], bounds[what])[0] for what in expected)

    assert right == (dtype not in rejected)


@every
def test_other_results_are_rejected(dtype):
    """lse in base 2, weights that do not add up to 1, and gradients without δ, without the scale or of one head."""
    given = plain(dtype, sinks=np.zeros(2, np.float32))
    _, _, expected, bounds = judged(given)
    silent = replace(given, dout=np.zeros_like(given.dout))
    wrong = {
        "lse": expected["lse"] / np.log(2),
        "weights": expected["weights"] * 1.5,
        "out": expected["out"] * 1.5,
        "q": judged(silent)[2]["q"],
        "k": expected["k"] * 4,
        "v": expected["v"] / 2,
        "sinks": -expected["sinks"],
    }

    assert set(wrong) == set(expected)
    for what, each in wrong.items():
        assert not compare(stored(each, given), expected[what], bounds[what])[0], what
        assert compare(stored(expected[what], given), expected[what], bounds[what])[0], what


def test_a_bound_does_not_depend_on_masked_keys():
    """Neither on their size, nor on NaN and infinities."""
    given = plain("float32", lengths=np.array([60, 60]))
    changed = replace(given, k=given.k.copy(), v=given.v.copy())
    changed.k[:, :, 60:] = changed.v[:, :, :59:-1] = np.array([1e30, NAN, INF, -INF], np.float32)[:, None]
    first, second = judged(given)[3], judged(changed)[3]

    for what in ("out", "lse", "weights", "q"):
        assert np.isfinite(second[what]).all() and np.allclose(first[what], second[what], rtol=1e-12), what


def test_an_empty_row_may_be_a_mean_within_rounding_and_its_lse_is_exact():
    given = plain("float32", lengths=np.array([0, 64]), dout=None, dlse=None)
    _, _, expected, bounds = judged(given)
    mean = given.v.astype(np.float64)[:1].mean(2, keepdims=True)

    assert (bounds["out"][0] < 1e-3 * abs(mean).max()).all() and (bounds["lse"][0] == 0).all()
    for what, empty in (("lse", -1e30), ("out", mean)):
        wrong = expected[what].copy()
        wrong[:1] = empty
        assert not compare(wrong, expected[what], bounds[what])[0]


def test_nothing_is_said_of_what_float16_cannot_hold():
    """Scores beyond 65504, and outputs that are rounded to infinity; other rows are judged."""
    given = plain("float16", dout=None, dlse=None)
    given = replace(given, q=given.q.copy(), v=given.v.copy())
    given.q[:, :, 0] = 3e4
    given.v[0, 0, :, 3] = 65504
    bounds = judged(given)[3]

    assert np.isinf(bounds["out"][:, :, 0]).all() and np.isinf(bounds["out"][0, 0, :, 3]).all()
    assert np.isfinite(bounds["lse"][:, :, 1:]).all() and np.isfinite(bounds["out"][1, :, 1:]).all()


@every
def test_what_the_dtype_cannot_hold_may_become_0(dtype):
    """Weights below the smallest number, times large values."""
    given = plain(dtype, dout=None, dlse=None)
    least = {"float16": 2.0**-25, "float64": 1e-308}.get(dtype, 1e-38)
    bias = np.zeros((1, 1, 1, 64))
    bias[..., 1:] = np.log(least)
    given = replace(given, bias=bias.astype(np.float32), v=(given.v * 0 + 100).astype(given.dtype))
    _, outcome, expected, bounds = judged(given)
    flushed = np.where(outcome.weights < 2 * least, 0, outcome.weights)

    assert compare(flushed, expected["weights"], bounds["weights"])[0]
    assert compare(flushed @ given.v.astype(np.float64), expected["out"], bounds["out"])[0]


@pytest.mark.parametrize(
    ("got", "expected", "allowed", "ratio"),
    [
        (1, 1, 0, 0),
        (2.5, 2, 1, 0.5),
        (4, 2, 1, 2),
        (2.1, 2, 0, INF),
        (NAN, NAN, NAN, 0),
        (1, NAN, 1, INF),
        (NAN, 1, 1, INF),
        (NAN, 1, INF, 0),
        (INF, INF, NAN, 0),
        (INF, -INF, 1, INF),
        (INF, 1, 1, INF),
        (3e38, INF, 1, INF),
        (NAN, INF, 1, INF),
        (INF, NAN, 1, INF),
        (1, 1, NAN, 0),
        (2, 1, NAN, INF),
    ],
)
def test_infinities_and_nan_are_compared_exactly(got, expected, allowed, ratio):
    right, worst, at = compare(*(np.array([1.0, each, 1.0]) for each in (got, expected, allowed)))

    assert (right, worst) == (ratio <= 1, ratio) and (right or at == (1,))


def test_results_of_no_numbers_and_of_another_shape_are_compared():
    assert compare(*np.zeros((3, 0))) == (True, 0.0, ())
    assert compare(np.ones(1), np.ones(2), np.ones(2))[:2] == (False, INF)


@pytest.mark.one_in(3)
@pytest.mark.slow
@pytest.mark.parametrize("dtype", [each for each in EVERY if each != "float32"])
def test_every_known_mistake_is_rejected_in_every_dtype(dtype):
    """On at least one probe; and the law itself on none. Which mistakes the output alone cannot tell apart is found by
    `classes`, and listed in `CLASSES`.
    """
    asked = [(probe, law_of(probe.call, probe.conventions)) for probe in probes(FLOATS[dtype].numpy)]

    def rejected(*mistakes):
        for probe, wanted in asked:
            answer = answer_of(mistakes, probe)
            right = wanted.judge(answer).right
            if not right or (answer.gradients and not compared_gradients(probe.call, probe.conventions, answer).right):
                return True
        return False

    assert not rejected()
    assert [mistake.name for mistake in CATALOG if not rejected(mistake)] == []
