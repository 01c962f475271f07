"""Two heads of one run compared in a real browser: both maps against the exact weights, one row, pointer and view."""

import dataclasses

import numpy as np
import pytest

from regard.lens.viewer import page
from tests.lens.page.colors import distance, logarithmic
from tests.support.browser import example, share
from tests.support.page_map import DIGITS, Map

CELLS = [(3, 1), (9, 4), (11, 7)]


@pytest.fixture
def home(home):
    """Two heads of the page: (the page, the first map, the second map, the exact weights)."""
    view, _, exact = home
    view.choose(head=1, second={"call": 1, "head": 2}, query=8, open=["compare"])
    return view, Map(view, "comparison.plots[0]"), Map(view, "comparison.plots[1]"), exact


def test_each_map_has_the_weights_of_its_head(home):
    """On every scale, also relative to uniform, with the figures of each row; and as their difference."""
    view, first, second, exact = home
    for scale in ("log", "lift"):
        view.choose(scale=scale)
        for chart, p in ((first, exact[0][1]), (second, exact[1][2])):
            for i, j in CELLS:
                uniform = 0.5 + np.log2(p[i, j] * np.count_nonzero(p[i])) / 12
                place, ramp = (logarithmic(p[i, j]), "light") if scale == "log" else (uniform, "diverging-light")
                assert distance(chart.pixel(i, j), place, ramp, slack=3) <= 1, (scale, i, j)
    assert view.text(".compare-names").split("\n") == ["first", "layer 0, head 1", "second", "layer 1, head 2"]
    view.choose(compare="difference")
    place = 0.5 + (exact[1][2][8, 3] - exact[0][1][8, 3]) / 2
    assert distance(first.pixel(8, 3), place, "diverging-light", slack=3) <= 1
    view.choose(compare="side")


def test_both_maps_have_one_row_one_pointer_and_one_view(home):
    """A click or a zoom in one is one in the other; both weights are said, and how far the rows are apart."""
    view, first, second, exact = home
    p, q = exact[0][1], exact[1][2]
    second.click(10, 4)
    assert view.state("query", "key") == (10, 4)
    first.hover(9, 3)
    said = view.text("#compare-said")
    assert said.startswith("“word9” (token 9) → “word3” (token 3): ")
    weights = [share(part) for part in said.split(" in the ")[:2]]
    assert weights == pytest.approx([p[9, 3], q[9, 3]], rel=DIGITS)
    assert share(view.text("#compare-row b")) == pytest.approx(np.abs(p[10] - q[10]).sum() / 2, rel=DIGITS)
    first.tab.mouse.dblclick(*first.at(8, 8))
    view.settled()
    assert first.seen() == second.seen() and 6 <= first.seen()["span"] < 8


def test_a_second_head_is_chosen_among_all_heads(home):
    """With Shift a head becomes the second one; the address keeps it; none takes it away."""
    view, *_ = home
    view.choose(second=None)
    assert not view.tab.is_visible("#compare-all")
    view.click("#grid button[data-call='1'][data-head='0']", modifiers=["Shift"])
    assert view.state("head", "second") == (1, {"call": 1, "head": 0})
    assert "second=1.0" in view.address()
    view.fits(360)
    view.select("#compare-second", "")
    assert view.state("second") is None


def test_heads_between_other_axes_are_not_offered(opened):
    """A row of one text is no row of another: only heads with the same rows and keys stand side by side."""
    run, _ = example(n=6, layers=1, heads=2)
    cross, _ = example(n=6, layers=1, heads=4, keys=9)
    view = opened(page(dataclasses.replace(cross, calls=(*run.calls, *cross.calls)), start={}))
    assert view.each("#grid .kind") == ["text", "text → source"]
    assert view.each("#compare-second option", "node.value") == ["", "0.0", "0.1", "0.mean"]
    view.click("#grid button[data-call='1'][data-head='3']", modifiers=["Shift"])
    assert view.state("second") is None and "other rows or keys" in view.text("#status")
