"""The visual of overflow: exponentials are NumPy's in every format, and it says where the sum is lost."""

import numpy as np
import pytest

FORMATS = {"float16": np.float16, "float32": np.float32, "float64": np.float64}
PRECISION = {"float16": 1e-3, "float32": 1e-6, "float64": 1e-12}


def exponentials(scores, kind):
    """exp in a format, and the sum, which is rounded to the format after each addition."""
    with np.errstate(over="ignore", under="ignore"):
        powers = np.exp(np.asarray(scores).astype(kind))
        total = kind(0)
        for power in powers:
            total = kind(total + power)
    return powers, total


@pytest.mark.parametrize("scores", [[2.0, 1.0, 0.0, -1.0], [100.0, 100.0, -20.0]])
def test_every_number_is_that_of_numpy(shown, scores):
    """At each temperature, with the largest score subtracted and not."""
    view = shown("overflow", scores=scores)
    for temperature, subtracted in ((0.1, False), (1.0, True), (7.5, False)):
        view.change(temperature=temperature, subtracted=subtracted)
        divided = np.array(scores) / temperature
        weights = np.exp(divided - divided.max()) / np.exp(divided - divided.max()).sum()
        assert view.row("score", len(scores)) == scores
        view.near({"weight": weights}, rel=1e-12, abs=0)
        for name, kind in FORMATS.items():
            powers, total = exponentials(divided - divided.max() * subtracted, kind)
            smallest = float(np.finfo(kind).smallest_subnormal)
            view.near({name: powers.astype(float), f"{name}-sum": float(total)}, rel=PRECISION[name], abs=smallest)


def test_exp_becomes_infinite_at_the_score_at_which_it_does_in_numpy(shown):
    """In each format, to within a rounding error, and words say so."""
    view = shown("overflow", scores=[0.0])
    for name, kind in FORMATS.items():
        end = kind(np.log(float(np.finfo(kind).max)))  # the last score before exp overflows
        for steps, infinite in ((-3, False), (3, True)):
            view.change(scores=[float(end + steps * np.spacing(end))])
            assert np.isinf(view.numbers()[f"{name}-0"]) == infinite
            assert ("∞, too large" in view.texts()[f"{name}-0"]) == infinite
            assert (name in view.tab.inner_text(".overflow-said")) == infinite


def test_a_shift_changes_no_weight_and_overflows_one_format_after_the_other(shown):
    """Unless the largest score is subtracted."""
    view = shown("overflow", scores=[2.0, 1.0, -1.0])
    before = view.row("weight", 3)
    for added, lost in ((8, ""), (20, "float16"), (100, "float16 and float32"), (750, "float16, float32 and float64")):
        view.change(added=added)
        view.near({"weight": before}, rel=1e-9)
        assert view.tab.inner_text(".overflow-said").startswith(
            f"In {lost} the sum is ∞" if lost else "All three formats"
        )
    view.change(subtracted=True)
    assert view.tab.inner_text(".overflow-said").startswith("All three formats")


def test_a_sum_of_0_is_said_as_well(shown):
    """With a temperature below 1, scores of −12 underflow even in float32."""
    view = shown("overflow", scores=[-12.0, -12.0], temperature=0.1)
    assert "In float16 and float32 the sum is 0" in view.tab.inner_text(".overflow-said")
    assert view.numbers()["weight-0"] == 0.5
    assert view.texts()["float16-0"] == "0, too small"
