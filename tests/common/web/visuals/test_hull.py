"""The visual of a convex hull: its numbers are NumPy's, and it says rightly whether the output is inside."""

import numpy as np
import pytest

from tests.support.axe import violations

pytestmark = pytest.mark.browser

VALUES = [[-3.0, -2.0], [3.0, -2.5], [2.5, 2.0], [-2.0, 3.0], [0.5, 0.5]]
DATA = {"values": VALUES, "scores": [0.0, 0.5, 2.5, 0.0, 0.5], "second": [2.5, 0.0, 0.0, 0.5, 0.0]}


def softmax(scores):
    powers = np.exp(np.array(scores) - max(scores))
    return powers / powers.sum()


def extends(values, out):
    """How far the output is beyond the values, in the direction in which it is farthest: at most 0 inside the hull."""
    turns = np.linspace(0, 2 * np.pi, 2001)
    directions = np.stack([np.cos(turns), np.sin(turns)])
    return float((out @ directions - (np.array(values) @ directions).max(0)).max())


def check(view, values, weights):
    numbers = view.numbers()
    out = weights @ np.array(values)
    assert [numbers[f"weight-{at}"] for at in range(len(values))] == pytest.approx(weights.tolist(), abs=1e-12)
    assert [[numbers[f"value-{at}-{axis}"] for axis in (0, 1)] for at in range(len(values))] == values
    assert numbers["sum"] == pytest.approx(weights.sum())
    assert [numbers["out-0"], numbers["out-1"]] == pytest.approx(out.tolist(), abs=1e-12)
    inside = extends(values, out) < 1e-9
    assert view.tab.evaluate("drawn.state.inside") == inside
    assert view.tab.inner_text(".hull-said").startswith("Inside" if inside else "Outside")
    return inside


@pytest.mark.parametrize("scores", [[0.0] * 5, [8, -8, -8, -8, -8], [0.3, -1.2, 2.5, 4, 0], [-3, -3, 7.9, 8, -8]])
def test_weights_of_a_softmax_stay_inside(shown, scores):
    view = shown("hull", **DATA)
    view.change(scores=scores)
    assert check(view, VALUES, softmax(scores))
    assert [view.numbers()[f"score-{at}"] for at in range(5)] == scores


@pytest.mark.parametrize("rate", [0.0, 0.2, 0.5])
@pytest.mark.parametrize("dropped", [[True, False, False, False, False], [False] * 5, [True] * 5])
def test_dropout_can_leave_it(shown, rate, dropped):
    view = shown("hull", **DATA)
    view.change(mode="dropout", dropped=dropped, rate=rate)
    check(view, VALUES, np.where(dropped, 0, softmax(DATA["scores"]) / (1 - rate)))


@pytest.mark.parametrize(("lam", "inside"), [(0.0, True), (0.8, False), (1.0, False)])
def test_a_difference_of_two_softmaxes_can_leave_it(shown, lam, inside):
    view = shown("hull", **DATA)
    view.change(**{"mode": "difference", "lambda": lam})
    assert check(view, VALUES, softmax(DATA["scores"]) - lam * softmax(DATA["second"])) == inside
    assert view.numbers()["sum"] == pytest.approx(1 - lam)


@pytest.mark.parametrize("values", [[[1.0, 1.0]] * 3, [[0.0, 0.0], [2.0, 1.0], [4.0, 2.0]], [[1.0, 2.0]]])
def test_a_hull_may_be_a_point_or_a_line(shown, values):
    scores = [0.0, 1.0, 2.0][: len(values)]
    view = shown("hull", values=values, scores=scores)
    weights = softmax(scores)
    assert [view.numbers()["out-0"], view.numbers()["out-1"]] == pytest.approx((weights @ np.array(values)).tolist())
    assert view.tab.evaluate("drawn.state.inside")
    view.change(mode="dropout", dropped=[True] * len(values))
    assert view.tab.evaluate("drawn.state.inside") == (values[0] == [0.0, 0.0])


def test_controls_work_by_keyboard(shown):
    view = shown("hull", **DATA)
    view.tab.get_by_label("score of key 1", exact=True).press("ArrowRight")
    view.tab.get_by_label("value of key 2: arrow keys").press("ArrowUp")
    values = [*VALUES[:2], [2.5, 2.5], *VALUES[3:]]
    scores = [0.0, 0.6, 2.5, 0.0, 0.5]
    check(view, values, softmax(scores))
    view.tab.get_by_label("weights").select_option("softmax, then dropout")
    view.tab.get_by_label("drop key 3").press("Space")
    check(view, values, np.where([1, 0, 0, 1, 0], 0, 2 * softmax(scores)))
    view.tab.get_by_label("weights").select_option("one softmax minus another")
    view.tab.get_by_label("second score of key 0").press("ArrowLeft")
    view.tab.get_by_label("λ").press("Home")
    check(view, values, softmax(scores))


@pytest.mark.parametrize("mode", ["softmax", "dropout", "difference"])
@pytest.mark.parametrize(("width", "scheme"), [(360, "light"), (1000, "dark"), (760, "light")])
def test_accessible_at_every_width(shown, width, scheme, mode):
    context = {"viewport": {"width": width, "height": 800}, "color_scheme": scheme, "bypass_csp": True}
    view = shown("hull", context, **DATA)
    view.change(mode=mode)
    assert violations(view.tab) == []
    assert view.tab.evaluate("document.documentElement.scrollWidth") <= width
    assert (
        view.tab.evaluate(
            "(({ scrollWidth, clientWidth }) => scrollWidth - clientWidth)(document.querySelector('.visual'))"
        )
        <= 0
    )
