"""Numbers, rows, weights and heads of recorded calls."""

import numpy as np
import pytest

import regard as rg
from regard.audits.finding import Finding, Passed
from tests.support.runs import CAUSAL, alarms, call_of, checks, run_of, softmax


def test_arrays_that_are_spoiled_apart_are_all_named(arrays):
    """NaN in q does not hide infinity in k, and nothing is claimed about an x that was not recorded."""
    from regard.lens.look import look

    q, k, _ = (part.copy() for part in arrays)
    q[1, 2, 3], k[0, 4, 5] = np.nan, np.inf

    (found,) = alarms(checks(look(q, k=k), None, ["numbers"]))

    assert "q has 1 " in found.measured and "k has 1 " in found.measured and found.numbers["arrays"] == ["q", "k"]
    assert "x, which was not recorded" in found.cause and "q and k" in found.cause and "finite" not in found.cause


def test_products_beyond_float16(arrays):
    """q·k beyond 65504 is a warning where the output survived, and a fault where it did not."""
    q, k, v = (part.astype(np.float16) for part in (arrays[0] * 200, arrays[1] * 200, arrays[2]))
    each = np.arange(4) // 2
    exact = np.float32(q) @ np.float32(k[each]).swapaxes(1, 2)
    out = (softmax(exact / 4) @ np.float32(v[each])).astype(np.float16)
    with np.errstate(all="ignore"):
        lost = (softmax(np.float16(exact) / 4) @ v[each]).astype(np.float16)

    def found(q, k, out):
        return [(each.check, each.severity) for each in alarms(checks(run_of(call_of(q, k, v, out))))]

    assert ("overflow", "warning") in found(q, k, out) and np.isnan(lost).any()
    assert {("overflow", "fault"), ("numbers", "fault")} <= set(found(q, k, lost))


def test_scores_that_16_bit_cannot_tell_apart(arrays):
    """A large offset common to all scores uses up the precision of bfloat16."""
    import ml_dtypes

    q, k, v = arrays
    k = k + 40 * np.sign(q.mean((0, 1)))
    q = np.abs(q) * np.sign(q.mean((0, 1))) * 0.5 + np.sign(q.mean((0, 1))) * 4
    results = checks(run_of(call_of(*(part.astype(ml_dtypes.bfloat16) for part in (q, k, v)), None)))

    assert [(found.check, found.severity) for found in alarms(results)] == [("overflow", "warning")]


@pytest.mark.parametrize("convention", ["0", "the mean of all values", "NaN"])
def test_rows_without_keys_and_their_convention(convention, arrays):
    """What an implementation makes of rows that may attend nothing is said, and NaN is a fault."""
    q, k, v = arrays
    each = np.arange(4) // 2
    seen = np.tri(24, dtype=bool)
    seen[:, :2] = False
    with np.errstate(all="ignore"):
        out = softmax(np.where(seen, q @ k[each].swapaxes(1, 2) / 4, -np.inf)) @ v[each]
    out[:, :2] = {"0": 0, "NaN": np.nan}.get(convention, v[each].mean(1, keepdims=True))

    found = [
        each
        for each in checks(run_of(call_of(q, k, v, out.astype(np.float32), mask=rg.causal() & (rg.key >= 2))))
        if isinstance(each, Finding)
    ]

    assert [(each.check, each.severity) for each in found] == [
        ("empty-rows", "fault" if convention == "NaN" else "note")
    ]
    assert found[0].numbers == {"rows": 2, "convention": convention, "heads": [0, 1, 2, 3]}


GIVEN = {
    "rows that sum to less than 1": lambda weights: weights * 0.9,
    "rows that sum to more than 1": lambda weights: weights * 1.1,
    "negative weights": lambda weights: weights - np.float32(0.01) * CAUSAL,
    "weight on masked keys": lambda weights: weights + np.float32(0.01) * ~CAUSAL,
}


@pytest.mark.parametrize("words", [None, *GIVEN])
def test_weights_that_were_handed_over(words, arrays):
    """Weights that no softmax over the allowed keys gives are a fault, the worst of it first; a softmax in float32 is
    none.
    """
    from regard.lens.look import look

    weights = softmax(np.where(CAUSAL, arrays[0] @ arrays[1][[0, 0, 1, 1]].swapaxes(1, 2), -np.inf).astype(np.float32))

    found = alarms(checks(look(weights=weights if words is None else GIVEN[words](weights), mask=rg.causal())))

    assert {finding.check for finding in found} == (set() if words is None else {"weights"})
    assert words is None or found[0].measured.startswith(words)


def test_faults_of_weights_in_other_rows_are_named_too():
    """What is wrong in one row hides nothing that is wrong in another."""
    from regard.lens.look import look

    weights = np.tri(6)[None] / np.arange(1, 7)[:, None]
    weights[0, 5] *= 1.5
    weights[0, 3, :2] += [0.5, -0.5]
    weights[0, 1] = [0.5, 0.25, 0.25, 0, 0, 0]

    found = alarms(checks(look(weights=weights, mask=rg.causal()), None, ["weights"]))

    assert [(each.row, each.numbers["what"]) for each in found] == [
        (1, "weight on masked keys"),
        (3, "negative weights"),
        (5, "rows that sum to more than 1"),
    ]


@pytest.mark.parametrize("dtype", [np.int64, np.int8, bool])
def test_weights_of_whole_numbers(dtype):
    """Weights 0 and 1 are weights, whatever kind of number they come as."""
    results = list(checks(rg.look(weights=np.eye(4, dtype=dtype)[None]), None, ["weights"]))

    assert [type(each) for each in results] == [Passed], str(results)


def heads_of(name, run):
    """{call: heads} that a check has notes about."""
    found = [each for each in checks(run, None, [name]) if isinstance(each, Finding)]
    assert all(each.severity == "note" for each in found)
    return {each.call: each.numbers["heads"] for each in found}


def test_unusual_heads_are_noted(arrays):
    """Saturated, even, dead, equal and resting heads are notes on these heads; ordinary heads have none."""
    q, k, v = np.repeat(arrays[0], 2, 0), np.repeat(arrays[1], 4, 0).copy(), np.repeat(arrays[2], 4, 0).copy()
    q[1] *= 1000
    q[2] = 0
    v[3] = 0
    q[5] = q[4]
    k[6, 0], q[6, :, 0] = 0, 4
    k[6, 0, 0] = 8
    out = softmax(np.where(CAUSAL, q @ k.swapaxes(1, 2) / 4, -1e30)) @ v
    run = run_of(call_of(q, k, v, out.astype(np.float32), mask=rg.causal()))

    found = {name: heads_of(name, run).get(0, []) for name in ("saturated", "uniform", "dead", "duplicate", "sink")}

    assert found == {"saturated": [1], "uniform": [2], "dead": [3], "duplicate": [4, 5], "sink": [6]}
    assert alarms(checks(run)) == []
