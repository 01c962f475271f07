"""Numbers, rows, weights and heads of recorded calls."""

import ml_dtypes
import numpy as np
import pytest

import regard as rg
from regard.audits.finding import Finding, Passed
from regard.lens.look import look
from tests.support.runs import CAUSAL, alarms, alarms_of, call_of, checks, run_of, softmax


def test_arrays_that_are_spoiled_apart_are_all_named(arrays):
    """NaN in q does not hide infinity in k, and nothing is claimed about an x that was not recorded."""
    q, k, _ = (part.copy() for part in arrays)
    q[1, 2, 3], k[0, 4, 5] = np.nan, np.inf

    (found,) = alarms(checks(look(q, k=k), None, ["numbers"]))

    assert "q has 1 " in found.measured and "k has 1 " in found.measured and found.numbers["arrays"] == ["q", "k"]
    assert "x, which was not recorded" in found.cause and "q and k" in found.cause and "finite" not in found.cause


def test_products_beyond_float16(arrays):
    """q·k beyond 65504 is a warning where the output survived, and a fault where it did not."""
    q, k, v = ((part * size).astype(np.float16) for part, size in zip(arrays, (200, 200, 1)))
    out = rg.attention(*map(np.float32, (q, k, v))).astype(np.float16)
    lost = out.copy()
    lost[1] = np.nan

    def found(out):
        return [(each.check, each.severity) for each in alarms_of(q, k, v, out)]

    assert ("overflow", "warning") in found(out)
    assert {("overflow", "fault"), ("numbers", "fault")} <= set(found(lost))


def test_scores_that_16_bit_cannot_tell_apart(arrays):
    """A large offset common to all scores uses up the precision of bfloat16."""
    q, k, v = (part.astype(ml_dtypes.bfloat16) for part in (abs(arrays[0]) / 2 + 4, arrays[1] + 40, arrays[2]))

    assert [(found.check, found.severity) for found in alarms_of(q, k, v, None)] == [("overflow", "warning")]


@pytest.mark.parametrize("convention", ["0", "the mean of all values", "NaN"])
def test_rows_without_keys_and_their_convention(convention, arrays):
    """What an implementation makes of rows that may attend nothing is said, and NaN is a fault."""
    mask = rg.causal() & (rg.key >= 2)
    out = rg.attention(*arrays, mask=mask)
    out[:, :2] = {"0": 0, "NaN": np.nan}.get(convention, arrays[2][[0, 0, 1, 1]].mean(1, keepdims=True))

    (found,) = (each for each in checks(run_of(call_of(*arrays, out, mask=mask))) if isinstance(each, Finding))

    assert (found.check, found.severity) == ("empty-rows", "fault" if convention == "NaN" else "note")
    assert found.numbers == {"rows": 2, "convention": convention, "heads": [0, 1, 2, 3]}


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
    weights = softmax(np.where(CAUSAL, arrays[0] @ arrays[0].swapaxes(1, 2), -np.inf))

    found = alarms(checks(look(weights=weights if words is None else GIVEN[words](weights), mask=rg.causal())))

    assert {finding.check for finding in found} == (set() if words is None else {"weights"})
    assert words is None or found[0].measured.startswith(words)


def test_faults_of_weights_in_other_rows_are_named_too():
    """What is wrong in one row hides nothing that is wrong in another."""
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


@pytest.mark.parametrize("dtype", [np.int8, bool])
def test_weights_of_whole_numbers(dtype):
    """Weights 0 and 1 are weights, whatever kind of number they come as."""
    results = list(checks(rg.look(weights=np.eye(4, dtype=dtype)[None]), None, ["weights"]))

    assert [type(each) for each in results] == [Passed], str(results)


def test_unusual_heads_are_noted(arrays):
    """Saturated, even, dead, equal and resting heads are notes on these heads; ordinary heads have none."""
    q, k, v = (np.repeat(part, 8 // len(part), 0) for part in arrays)
    q[1] *= 1000
    q[2] = 0
    v[3] = 0
    q[5] = q[4]
    k[6, 0], q[6, :, 0] = 0, 4
    k[6, 0, 0] = 8

    out = rg.attention(q, k, v, mask=rg.causal())
    results = checks(run_of(call_of(q, k, v, out, mask=rg.causal())))
    found = {each.check: (each.severity, each.numbers["heads"]) for each in results if isinstance(each, Finding)}

    notes = {"saturated": [1], "uniform": [2], "dead": [3], "duplicate": [4, 5], "sink": [6]}
    assert found == {name: ("note", heads) for name, heads in notes.items()}
