"""The visual of a softmax: its weights are NumPy's at every temperature."""

import numpy as np
import pytest


@pytest.mark.parametrize("scores", [[2.0, 1.0, 0.0, -1.0], [100.0, 100.0, -20.0]])
def test_every_number_is_that_of_numpy(shown, scores):
    """At each temperature."""
    view = shown("softmax", scores=scores)
    for temperature in (0.1, 1.0, 7.5):
        view.change(temperature=temperature)
        powers = np.exp((np.array(scores) - max(scores)) / temperature)
        assert view.row("score", len(scores)) == scores
        view.near({"weight": powers / powers.sum()})


def test_bars_are_as_long_as_their_weights(shown):
    """Within their tracks."""
    view = shown("softmax", scores=[2.0, 1.0, -1.0])
    widths = view.tab.eval_on_selector_all(
        ".softmax-track",
        "(tracks) => tracks.map((track) => track.firstChild.getBoundingClientRect().width / track.clientWidth)",
    )
    assert widths == pytest.approx(view.row("weight", 3), abs=0.005)
