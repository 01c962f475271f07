"""The visual of projections: q, k and v are NumPy's for every x."""

import numpy as np
import pytest

pytestmark = pytest.mark.browser

RANDOM = np.random.default_rng(0)
X = RANDOM.standard_normal(12).round(2)
MATRICES = {name: RANDOM.standard_normal((12, 32)) for name in ("W_q", "W_k", "W_v")}
RESTS = {name: RANDOM.standard_normal(32) for name in ("rest_q", "rest_k", "rest_v")}
DATA = {"x": X, **MATRICES, **RESTS, "width": 384}


def check(view, x, rests=RESTS):
    """Fails unless every number that is shown follows from x."""
    numbers = view.numbers()
    assert view.row("x", len(x)) == pytest.approx(list(x))
    for role in "qkv":
        now, before = (row @ MATRICES[f"W_{role}"][: len(x)] + rests.get(f"rest_{role}", 0) for row in (x, X[: len(x)]))
        assert view.row(role, 32) == pytest.approx(now.tolist(), abs=1e-12)
        assert numbers[f"moved-{role}"] == pytest.approx(np.abs(now - before).mean(), abs=1e-12)
    (role, at), edited = view.state("chosen", "edited")
    whole = (x @ MATRICES[f"W_{role}"][: len(x)] + rests.get(f"rest_{role}", 0))[at]
    term = x[edited] * MATRICES[f"W_{role}"][edited, at]
    found = numbers["chosen"], numbers["term"], numbers["others"]
    assert found == pytest.approx((whole, term, whole - term), abs=1e-12)


def test_every_number_is_that_of_numpy(shown):
    """For x as it is given, zeros, a multiple and another; also without numbers of x that are not shown."""
    view = shown("projections", **DATA)
    for x in (X, np.zeros(12), 3 * X, RANDOM.standard_normal(12)):
        view.change(x=x.tolist(), edited=7, chosen=["v", 31])
        check(view, x)
    view = shown("projections", x=X[:3], **{name: matrix[:3] for name, matrix in MATRICES.items()})
    check(view, X[:3], rests={})
    assert "bias" not in view.tab.inner_text(".proj-explained")


def test_bars_are_as_high_as_their_numbers(shown):
    """The highest fills the drawing."""
    view = shown("projections", **DATA)
    heights = view.tab.eval_on_selector_all(
        ".proj-chart.q .proj-column", "(bars) => bars.map((bar) => Number(bar.getAttribute('height')))"
    )
    q = np.abs(X @ MATRICES["W_q"] + RESTS["rest_q"])
    assert np.array(heights) == pytest.approx(q / q.max() * max(heights), abs=0.02)


def test_x_follows_the_pointer_keys_and_typed_numbers(shown):
    """And one button brings the first numbers back."""
    view = shown("projections", **DATA)
    x = X.copy()
    view.tab.get_by_label("x[3]", exact=True).press("ArrowRight")
    x[3] += 0.1
    check(view, x)
    view.tab.get_by_label("x[5], typed").fill("-1.75")
    x[5] = -1.75
    check(view, x)
    view.tab.get_by_label("x[5], typed").press("ArrowUp")
    x[5] = -1.65
    check(view, x)

    track = view.tab.locator(".proj-row").nth(7).locator(".proj-track").bounding_box()
    view.tab.mouse.move(track["x"] + track["width"] / 2, track["y"] + 8)
    view.tab.mouse.down()
    view.tab.mouse.move(track["x"] + track["width"] * 0.75, track["y"] + 8)
    view.tab.mouse.up()
    x[7] = view.numbers()["x-7"]
    assert 0.4 < x[7] / (1.5 * np.abs(X).max()) < 0.6  # half of the way to the right
    check(view, x)
    view.tab.get_by_role("button", name="Numbers as at first").click()
    check(view, X)


def test_a_number_is_chosen_by_the_pointer_or_with_keys(shown):
    """And explained."""
    view = shown("projections", **DATA)
    chart = view.tab.locator(".proj-chart.v .drawing")
    box = chart.bounding_box()
    chart.hover(position={"x": box["width"] * 10.5 / 32, "y": 20})
    assert view.tab.inner_text(".proj-explained").startswith("v[10] = ")
    chart.press("ArrowRight")
    assert chart.get_attribute("aria-valuetext").startswith("v[11] = ")
    check(view, X)
