"""Links to the parts of a page, the map that fills the window, rows that taps add, and where a page opens."""

import dataclasses

import numpy as np
import pytest

import regard as rg
from regard.lens import page
from regard.lens.runs.first_view import choose
from tests.support.browser import example


@pytest.mark.sweep
def test_links_lead_to_every_part(home):
    """Each visible part has a link, which scrolls to it and moves the focus there; hidden parts have none."""
    view, *_ = home
    shown = view.tab.evaluate(
        """() => [...document.querySelectorAll("#places button")].filter((each) => !each.hidden)
            .map((each) => [each.dataset.place, each.textContent])"""
    )
    first = [
        ["atlas", "Heads"],
        ["map", "Map"],
        ["reader", "Text"],
        ["beside", "Two heads"],
        ["lines", "Lines"],
        ["pair", "Pair"],
    ]
    assert shown == [*first, ["walk", "Step by step"]]
    for place, _ in shown:
        view.click(f"#places [data-place={place}]")
        view.tab.wait_for_function(
            """(id) => {
                const { top, bottom } = document.getElementById(id).getBoundingClientRect();
                return top < innerHeight && bottom > 0;
            }""",
            arg=place,
        )
        assert view.tab.evaluate("document.activeElement.id") == place


def test_the_map_fills_the_window(home):
    """Alone, as large as the window lets it be; Escape and the button lead back; the view is part of the address."""
    view, *_ = home
    before = view.tab.eval_on_selector("#map .matrix", "node => node.getBoundingClientRect().height")
    view.click("#fill")
    assert view.state("filled") == "map" and not view.tab.is_visible("#atlas") and not view.tab.is_visible("#walk")
    box = view.tab.locator("#map .matrix").bounding_box()
    assert box["height"] > before and box["width"] > 0.9 * view.tab.evaluate("innerWidth") - 60
    assert "filled=map" in view.tab.evaluate("address()")
    view.tab.keyboard.press("Escape")
    view.settled()
    assert view.state("filled") is None and view.tab.is_visible("#atlas")
    assert view.tab.eval_on_selector("#map .matrix", "node => node.getBoundingClientRect().height") == before
    view.tab.keyboard.press("f")
    view.settled()
    view.click("#places [data-place=pair]")
    assert view.state("filled") is None


@pytest.mark.one_in(2)
@pytest.mark.parametrize("named", [True, False], ids=["one head", "several heads"])
def test_a_page_opens_on_a_fault(opened, named):
    """In the head, and the row if it is known, of the first fault; of warnings and notes only if nothing is wrong."""
    run, _ = example(n=12, layers=2, heads=3)
    first = choose(run)
    call, head = (first.call + 1) % 2, (first.head + 1) % 3
    about = {"head": head, "row": 6} if named else {"head": None, "row": None, "numbers": {"heads": [head, 0]}}
    words = {"check": "a-check", "where": "there", "measured": "", "cause": "", "fix": "", "numbers": {}, "call": call}
    warning = words | {"severity": "warning", "head": first.head, "row": 0}
    view = opened(page(run, findings=[warning, words | about | {"severity": "fault"}]))
    assert (view.state("call"), view.state("head")) == (call, head) and (not named or view.state("query") == 6)
    view = opened(page(run, findings=[warning]))
    assert (view.state("call"), view.state("head"), view.state("query")) == (first.call, first.head, first.query)
    view = opened(page(run, start={}, findings=[words | about | {"severity": "fault"}]))
    assert (view.state("call"), view.state("head"), view.state("query")) == (0, 0, 0)


def test_a_fault_outside_the_run_opens_nothing():
    """Findings may be about layers that a run does not have."""
    run, _ = example(n=8, layers=1, heads=2)
    found = {"severity": "fault", "call": 7, "head": 1, "row": None, "check": "x", "numbers": {}}
    assert choose(run, findings=[found]) == choose(run)
    broken = dataclasses.replace(run.calls[0], rows={**run.calls[0].rows, "maximum": np.zeros((2, 8), np.float32)})
    assert choose(dataclasses.replace(run, calls=(broken,))).why.startswith("the first of all heads")
    assert rg.lens.page(run).startswith("<!doctype html>")
