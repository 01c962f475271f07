"""Links to the parts of a page, the map that fills the window, rows that taps add, and where a page opens."""

import numpy as np

from regard.lens import page
from regard.lens.runs.first_view import choose
from tests.support.browser import example, fault


def test_the_map_fills_the_window(home):
    """Alone, as large as the window lets it be; Escape and the button lead back; the view is part of the address."""
    view, *_ = home

    def size():
        return view.tab.locator("#map .matrix").bounding_box()

    before = size()
    view.click("#fill")
    assert view.state("filled") == "map" and not view.tab.is_visible("#atlas") and not view.tab.is_visible("#walk")
    assert size()["height"] > before["height"]
    assert size()["width"] > 0.9 * view.tab.evaluate("innerWidth") - 60
    assert "filled=map" in view.tab.evaluate("address()")
    view.press("Escape")
    assert view.state("filled") is None and view.tab.is_visible("#atlas") and size()["height"] == before["height"]
    view.press("f")
    view.click("#places [data-place=pair]")
    assert view.state("filled") is None


def test_a_page_opens_on_a_fault(opened):
    """In the head, and the row if it is known, of the first fault; of warnings and notes only if nothing is wrong."""
    run, _ = example(n=12, layers=2, heads=3)
    first = choose(run)
    call, head = (first.call + 1) % 2, (first.head + 1) % 3
    words = {"check": "a-check", "where": "there", "measured": "", "cause": "", "fix": "", "numbers": {}, "call": call}
    warning = words | {"severity": "warning", "head": first.head, "row": 0}
    one = words | {"severity": "fault", "head": head, "row": 6}
    several = one | {"head": None, "row": None, "numbers": {"heads": [head, 0]}}
    for start, about, expected in (
        (None, one, (call, head, 6)),
        (None, several, (call, head)),
        (None, warning, (first.call, first.head, first.query)),
        ({}, one, (0, 0, 0)),
    ):
        view = opened(page(run, start=start, findings=[warning, about]))
        assert view.state("call", "head", "query")[: len(expected)] == expected


def test_a_fault_outside_the_run_opens_nothing():
    """Findings may be about layers that a run does not have."""
    run, _ = example(n=8, layers=1, heads=2)
    found = {"severity": "fault", "call": 7, "head": 1, "row": None, "check": "x", "numbers": {}}
    assert choose(run, findings=[found]) == choose(run)
    rows = {**run.calls[0].rows, "maximum": np.zeros((2, 8), np.float32)}
    assert choose(fault(run, rows=rows)).why.startswith("the first of all heads")
