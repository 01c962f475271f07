"""The page on a touch screen: everything that a mouse chooses with Shift and Alt is chosen by taps.

A tap on the map is a click to the page: test_map.
"""

import numpy as np

import regard as rg
from tests.support.browser import example

PHONE = {"viewport": {"width": 390, "height": 800}, "has_touch": True, "is_mobile": True, "device_scale_factor": 2}


def test_taps_on_words_choose_the_row_the_key_or_further_rows(opened):
    """With “choose key” a tap chooses the key of the row, with “add rows” one row more, or less; the hint
    speaks of taps. Every control of these parts is at least 24 pixels high, and nothing is cut off.
    """
    view = opened(example(n=12, mask=rg.causal())[0], "#call=0&head=0&query=3", **PHONE)
    assert "Tap a token" in view.text("#reader-readout")
    for selector, chosen in (
        ("#words-8", (8, [], None)),
        ("#reader-key", (8, [], None)),
        ("#words-2", (8, [], 2)),
        ("#reader-add", (8, [], 2)),
        ("#words-7", (8, [7], 2)),
        ("#words-9", (8, [7, 9], 2)),
        ("#words-7", (8, [9], 2)),
    ):
        view.tab.locator(selector).tap()
        view.settled()
        assert view.state("query", "pins", "key") == chosen, selector
    view.choose(second={"call": 1, "head": 0})
    view.reach("lines")
    selector = "#lines :is(button, [role=option]), #compare-second, #map-head, #reader-key, #reader-add"
    heights = view.each(selector, "node.checkVisibility() ? node.getBoundingClientRect().height : Infinity")
    assert np.isfinite(heights).sum() > 24 and min(heights) >= 24
    assert view.cut_off() == []
