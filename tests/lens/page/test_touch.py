"""The page on a touch screen: everything that a mouse chooses with Shift and Alt is chosen by taps."""

import numpy as np
import pytest

import regard as rg
from regard.lens.runs.codes import FINE_ERROR
from regard.lens.viewer import page
from tests.support.browser import example
from tests.support.page_map import DIGITS, Map

PHONE = {"viewport": {"width": 390, "height": 800}, "has_touch": True, "is_mobile": True, "device_scale_factor": 2}


@pytest.fixture
def phone(opened):
    """A page of a causal run of 12 tokens on a phone, and its exact weights."""
    run, exact = example(n=12, mask=rg.causal())
    return opened(page(run), "#call=0&head=0&query=3", **PHONE), exact


def tap(view, selector):
    view.tab.locator(selector).scroll_into_view_if_needed()
    view.tab.tap(selector)
    view.settled()


def tap_cell(chart, i, j):
    chart.tab.touchscreen.tap(*chart.at(i, j))
    chart.view.settled()


def test_a_tap_on_the_map_chooses_the_row_and_the_key(phone):
    """And says its weight; a tap beside the matrix chooses a row, one above it a key."""
    view, exact = phone
    chart = Map(view)
    tap_cell(chart, 8, 5)
    assert view.state("query", "key") == (8, 5)
    said = view.text("#map-pinned")
    assert float(said.rsplit(":", 1)[1].split(" %")[0]) / 100 == pytest.approx(exact[0][0, 8, 5], rel=DIGITS)
    x, y = chart.at(4, 0)
    view.tab.touchscreen.tap(x - chart.seen()["kx"] / 2 - 12, y)
    view.settled()
    assert view.state("query", "key") == (4, 5)
    x, y = chart.at(0, 2)
    view.tab.touchscreen.tap(x, y - chart.seen()["ky"] / 2 - 12)
    view.settled()
    assert view.state("query", "key") == (4, 2)


@pytest.mark.sweep
def test_a_tap_on_a_word_chooses_the_row_and_a_control_the_key(phone):
    """With “choose key” a tap chooses the key of the row; the hint speaks of taps."""
    view, exact = phone
    tap(view, "#words-8")
    assert view.state("query", "key") == (8, None)
    assert "Tap a token" in view.text("#reader-readout")
    tap(view, "#reader-key")
    tap(view, "#words-2")
    assert view.state("query", "key") == (8, 2)
    assert view.text("#map-pinned").startswith("“word8” (token 8) → “word2” (token 2): ")
    shown = view.tab.locator("#strongest-list [aria-selected=true] data").first.get_attribute("value")
    assert float(shown) == pytest.approx(exact[0][0, 8, 2], rel=FINE_ERROR)
    tap(view, "#reader-key")
    tap(view, "#words-5")
    assert view.state("query", "key") == (5, 2)


@pytest.mark.sweep
def test_taps_add_rows_and_their_mean_is_shown(phone):
    """“add rows” and “choose key” exclude each other; the list is the mean of the rows that were tapped."""
    view, exact = phone
    tap(view, "#reader-key")
    tap(view, "#reader-add")
    assert view.tab.get_attribute("#reader-key", "aria-pressed") == "false"
    for row in (7, 9):
        tap(view, f"#words-{row}")
    assert view.state("query", "pins", "key") == (3, [7, 9], None)
    assert "Mean of 3 rows" in view.text("#reader-pins")
    p = exact[0][0][[3, 7, 9]].mean(0)
    entry = view.tab.locator("#strongest-list .entry[data-token]").first
    assert int(entry.get_attribute("data-token")) == p.argmax()
    assert float(entry.locator("data").first.get_attribute("value")) == pytest.approx(p.max(), rel=FINE_ERROR)
    tap(view, "#words-7")
    assert view.state("pins") == [9]
    tap(view, "#reader-pins button")
    assert view.state("pins") == []


def test_controls_are_large_enough_to_tap(phone):
    """Every visible control of the new parts is at least 24 pixels high, and nothing is cut off."""
    view, _ = phone
    view.choose(second={"call": 1, "head": 0})
    view.reach("lines")
    heights = view.tab.eval_on_selector_all(
        "#lines :is(button, [role=option]), #beside :is(button, select), #map-head, #reader-key, #reader-add",
        "nodes => nodes.filter((node) => node.checkVisibility()).map((node) => node.getBoundingClientRect().height)",
    )
    assert len(heights) > 24 and min(heights) >= 24
    assert view.cut_off() == []
    assert np.isclose(view.tab.evaluate("document.documentElement.scrollWidth"), 390)
