"""The page on a touch screen: everything that a mouse chooses with Shift and Alt is chosen by taps."""

import numpy as np
import pytest

import regard as rg
from tests.support.browser import example
from tests.support.page_map import DIGITS, Map, share

PHONE = {"viewport": {"width": 390, "height": 800}, "has_touch": True, "is_mobile": True, "device_scale_factor": 2}


@pytest.fixture
def phone(opened):
    """A page of a causal run of 12 tokens on a phone, and its exact weights."""
    run, exact = example(n=12, mask=rg.causal())
    return opened(run, "#call=0&head=0&query=3", **PHONE), exact


def test_a_tap_on_the_map_chooses_the_row_and_the_key(phone):
    """And says its weight; a tap beside the matrix chooses a row, one above it a key."""
    view, exact = phone
    chart = Map(view)
    for cell, chosen in (
        ((8, 5), (8, 5)),
        ((4, -0.5 - 12 / chart.seen()["kx"]), (4, 5)),
        ((-0.5 - 12 / chart.seen()["ky"], 2), (4, 2)),
    ):
        view.tab.touchscreen.tap(*chart.at(*cell))
        view.settled()
        assert view.state("query", "key") == chosen
    assert share(view.text("#map-pinned")) == pytest.approx(exact[0][0, 4, 2], rel=DIGITS)


def test_taps_on_words_choose_the_row_the_key_or_further_rows(phone):
    """With “choose key” a tap chooses the key of the row, with “add rows” one row more, or less; the two exclude each
    other; the hint speaks of taps. Every control of these parts is at least 24 pixels high, and nothing is cut off.
    """
    view, _ = phone
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
    assert view.tab.get_attribute("#reader-key", "aria-pressed") == "false"
    view.choose(second={"call": 1, "head": 0})
    view.reach("lines")
    selector = "#lines :is(button, [role=option]), #beside :is(button, select), #map-head, #reader-key, #reader-add"
    heights = view.each(selector, "node.checkVisibility() ? node.getBoundingClientRect().height : Infinity")
    assert np.isfinite(heights).sum() > 24 and min(heights) >= 24
    assert view.cut_off() == []
