"""The visual of a softmax: its bars. (Its weights: test_overflow, whose visual shows this one.)"""

import pytest


def test_bars_are_as_long_as_their_weights(shown):
    """Within their tracks."""
    view = shown("softmax", scores=[2.0, 1.0, -1.0])
    widths = view.tab.eval_on_selector_all(
        ".softmax-track",
        "(tracks) => tracks.map((track) => track.firstChild.getBoundingClientRect().width / track.clientWidth)",
    )
    assert widths == pytest.approx(view.row("weight", 3), abs=0.005)
