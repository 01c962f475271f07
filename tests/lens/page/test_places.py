"""Links to the parts of a page, the map that fills the window, rows that taps add, and where a page opens."""

import numpy as np

from regard.lens import page
from regard.lens.runs.first_view import choose
from tests.support.browser import example, fault


def test_the_map_fills_the_window(home):
    """Alone, as large as the window lets it be; Escape and links to other parts lead back; the address holds it."""
    view, *_ = home

    def size():
        return view.tab.locator("#map .matrix").bounding_box()

    before = size()
    view.click("#fill")
    assert "filled=map" in view.tab.evaluate("address()") and not view.tab.is_visible("#atlas")
    assert size()["height"] > before["height"]
    assert size()["width"] > 0.9 * view.tab.evaluate("innerWidth") - 60
    view.press("Escape")
    assert view.state("filled") is None and size()["height"] == before["height"]
    view.press("f")
    view.click("#places [data-place=pair]")
    assert view.state("filled") is None


def test_a_page_opens_on_a_fault(opened):
    """In the head, and the row if it is known, of the first fault; of warnings and notes only if nothing is wrong, nor
    of faults in layers that a run does not have.
    """
    run, _ = example(n=12, layers=2, heads=3)
    first = choose(run)
    call, head = (first.call + 1) % 2, (first.head + 1) % 3
    words = dict.fromkeys(("check", "where", "measured", "cause", "fix"), "words") | {"numbers": {}, "call": call}
    warning = words | {"severity": "warning", "head": first.head, "row": 0}
    one = words | {"severity": "fault", "head": head, "row": 6}
    several = one | {"head": None, "row": None, "numbers": {"heads": [head, 0]}}
    for start, about, expected in ((None, one, (call, head, 6)), ({}, one, (0, 0, 0))):
        view = opened(page(run, start=start, findings=[warning, about]))
        assert view.state("call", "head", "query") == expected
    chosen = choose(run, findings=[warning, several])
    assert (chosen.call, chosen.head) == (call, head)
    assert choose(run, findings=[warning]) == choose(run, findings=[one | {"call": 7}]) == first
    alone, _ = example(layers=1)
    rows = alone.calls[0].rows | {"maximum": np.zeros((3, 8), np.float32)}
    assert choose(fault(alone, rows=rows)).why.startswith("the first of all heads")
