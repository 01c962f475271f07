"""The visual of a softmax: its weights are NumPy's at every temperature."""

import numpy as np
import pytest

from tests.support.axe import violations

pytestmark = pytest.mark.browser


@pytest.mark.parametrize("scores", [[2.0, 1.0, 0.0, -1.0], [0.0], [100.0, 100.0, -20.0]])
@pytest.mark.parametrize("temperature", [0.1, 1.0, 7.5])
def test_every_number_is_that_of_numpy(shown, scores, temperature):
    view = shown("softmax", scores=scores)
    view.change(temperature=temperature)
    powers = np.exp((np.array(scores) - max(scores)) / temperature)
    numbers = view.numbers()
    assert [numbers[f"score-{at}"] for at in range(len(scores))] == scores
    assert [numbers[f"weight-{at}"] for at in range(len(scores))] == pytest.approx((powers / powers.sum()).tolist())


def test_bars_are_as_long_as_their_weights(shown):
    view = shown("softmax", scores=[2.0, 1.0, -1.0])
    widths = view.tab.eval_on_selector_all(
        ".softmax-track",
        "(tracks) => tracks.map((track) => track.firstChild.getBoundingClientRect().width / track.clientWidth)",
    )
    assert widths == pytest.approx([view.numbers()[f"weight-{at}"] for at in range(3)], abs=0.005)


def test_controls_work_by_keyboard(shown):
    view = shown("softmax", scores=[2.0, 1.0], labels=["cat", "mat"], range=[-3, 4])
    view.tab.get_by_label("score of mat").press("ArrowRight")
    assert view.numbers()["score-1"] == pytest.approx(1.1)
    view.tab.get_by_label("score of mat").press("End")
    assert view.numbers()["score-1"] == 4
    view.tab.get_by_label("temperature").press("End")
    assert view.tab.evaluate("drawn.state.temperature") == 10


@pytest.mark.parametrize("width", [360, 1000])
def test_accessible_at_every_width(shown, width):
    view = shown(
        "softmax", {"viewport": {"width": width, "height": 800}, "bypass_csp": True}, scores=[90.0, 1.0, -30.0]
    )
    assert violations(view.tab) == []
    assert view.tab.evaluate("document.documentElement.scrollWidth") <= width
