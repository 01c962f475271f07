"""Two heads side by side in a real browser: both maps against the exact weights, one row, one pointer, one view."""

import numpy as np
import pytest

import regard as rg
from regard.lens.drawing.ramp import ramp
from regard.lens.viewer import page
from tests.support.browser import example
from tests.support.lanes import sweep
from tests.support.page_map import DIGITS, Map

BEGIN = {
    "call": 0,
    "head": 1,
    "second": {"call": 1, "head": 2},
    "query": 8,
    "key": None,
    "pins": [],
    "scale": "log",
    "view": None,
    "hideSpecial": False,
}


@pytest.fixture(scope="module")
def shown(kept_open):
    """A causal run of 12 tokens: (its page, the first map, the second map, the exact weights)."""
    run, exact = example(n=12, mask=rg.causal())
    view = kept_open(page(run))
    return view, Map(view, "beside.plots[0]"), Map(view, "beside.plots[1]"), exact


@pytest.fixture
def home(shown):
    """The same, with two heads chosen."""
    shown[0].tab.mouse.move(0, 0)
    shown[0].tab.evaluate("document.activeElement.blur()")
    shown[0].choose(**BEGIN)
    return shown


def coloured(chart, i, j, share):
    """Whether a cell has the colour at this place of the ramp, to within the step of its code."""
    at = round(255 * min(1, max(0, share)))
    steps = ramp("light").astype(int)[max(0, at - 3) : at + 4]
    return np.abs(steps - chart.pixel(i, j)[:3]).sum(-1).min() <= 1


def test_each_map_has_the_weights_of_its_head(home):
    """On every scale, also on those relative to the row, whose figures are those of each head."""
    view, first, second, exact = home
    for scale in ("log", "row"):
        view.choose(scale=scale)
        for chart, p in ((first, exact[0][1]), (second, exact[1][2])):
            for i, j in [(3, 1), (9, 4), (11, 7)]:
                share = 1 + np.log10(p[i, j]) / 6 if scale == "log" else p[i, j] / p[i].max()
                assert coloured(chart, i, j, share), (scale, i, j)
    assert view.text("#beside-title-0") == "Layer 0, head 1" and view.text("#beside-title-1") == "Layer 1, head 2"
    boxes = [view.tab.locator(f"#beside-{at} .matrix").bounding_box() for at in (0, 1)]
    assert boxes[0]["y"] == boxes[1]["y"] and min(box["width"] for box in boxes) > 500


def test_both_maps_have_one_row_one_pointer_and_one_view(home):
    """A click or a zoom in one is one in the other; both weights are said, and how far the rows are apart."""
    view, first, second, exact = home
    p, q = exact[0][1], exact[1][2]
    second.click(10, 4)
    assert view.state("query", "key") == (10, 4)
    first.hover(9, 3)
    assert view.tab.evaluate("[Math.floor(state.hover.row), Math.floor(state.hover.column)]") == [9, 3]
    said = view.text("#beside-said")
    assert said.startswith("“word9” (token 9) → “word3” (token 3): ")
    ours, theirs = (float(part.split(" %")[0].rsplit(" ", 1)[-1]) / 100 for part in said.split(" in layer")[:2])
    assert (ours, theirs) == (pytest.approx(p[9, 3], rel=DIGITS), pytest.approx(q[9, 3], rel=DIGITS))
    told = float(view.text("#beside-row b").split(" %")[0]) / 100
    assert told == pytest.approx(np.abs(p[10] - q[10]).sum() / 2, rel=DIGITS)
    first.tab.mouse.dblclick(*first.at(8, 8))
    view.settled()
    assert first.seen() == second.seen() and 6 <= first.seen()["span"] < 8
    second.tab.focus("#beside-1 .matrix")
    before = view.state("query")
    view.press("ArrowUp")
    assert view.state("query") == before - 1


def test_a_second_head_is_chosen_in_the_list_and_among_all_heads(home):
    """With Shift, by mouse or keyboard, a head becomes the second one; the address keeps it; none takes it away."""
    view, *_ = home
    view.choose(second=None)
    assert not view.tab.is_visible("#beside-body")
    assert "with Shift" in view.text("#beside-note")
    view.click("#grid button[data-call='1'][data-head='0']", modifiers=["Shift"])
    assert view.state("head", "second") == (1, {"call": 1, "head": 0})
    assert view.tab.evaluate("document.activeElement.id") == "beside"
    assert "second=1.0" in view.tab.evaluate("address()")
    assert view.tab.locator("#grid button.second").get_attribute("data-call") == "1"
    view.tab.focus("#grid button[data-call='0'][data-head='2']")
    view.press("Shift+Enter")
    assert view.state("head", "second") == (1, {"call": 0, "head": 2})
    view.tab.select_option("#beside-second", "1.2")
    view.settled()
    assert view.text("#beside-title-1") == "Layer 1, head 2"
    view.click("#beside-exchange")
    assert view.state("call", "head", "second") == (1, 2, {"call": 0, "head": 1})
    view.tab.select_option("#beside-second", "")
    view.settled()
    assert view.state("second") is None and not view.tab.is_visible("#beside-body")
    view.choose(second={"call": 7, "head": 0})
    assert not view.tab.is_visible("#beside-body")


def test_a_mean_can_be_the_second_head(home):
    """One head next to the mean of its layer."""
    view, first, second, exact = home
    view.tab.select_option("#beside-second", label="mean of the 3 heads of layer 0")
    view.settled()
    mean = exact[0].mean(0)
    for i, j in [(3, 1), (9, 4), (11, 7)]:
        assert coloured(first, i, j, 1 + np.log10(exact[0][1][i, j]) / 6)
        assert coloured(second, i, j, 1 + np.log10(mean[i, j]) / 6)
    told = float(view.text("#beside-row b").split(" %")[0]) / 100
    assert told == pytest.approx(np.abs(exact[0][1][8] - mean[8]).sum() / 2, rel=DIGITS)


def test_heads_between_other_axes_are_not_offered(opened):
    """A row of one text is no row of another: only heads with the same rows and keys stand side by side."""
    run, _ = example(n=6, layers=1, heads=2)
    cross, _ = example(n=6, layers=1, heads=4, keys=9)
    view = opened(page(rg.Run("toy", "", {**run.axes, **cross.axes}, (*run.calls, *cross.calls)), start={}))
    offered = view.tab.eval_on_selector_all("#beside-second option", "nodes => nodes.map((node) => node.value)")
    assert offered == ["", "0.0", "0.1", "0.mean"]
    view.click("#grid button[data-call='1'][data-head='3']", modifiers=["Shift"])
    assert view.state("second") is None and "other rows or keys" in view.text("#status")
    view.choose(second={"call": 0, "head": 1})
    assert view.tab.is_visible("#beside-body")
    view.choose(call=1)
    assert not view.tab.is_visible("#beside-body")


@pytest.mark.spread
@pytest.mark.parametrize("width", [360, 900, *sweep(1300)])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_maps_stand_below_each_other_in_narrow_windows(opened, width, scheme):
    """And side by side in wide ones, as an address with a second head opens them; nothing is cut off."""
    view = opened(
        page(example(n=12, mask=rg.causal())[0]),
        "#call=0&head=1&second=1.2&query=8",
        viewport={"width": width, "height": 800},
        color_scheme=scheme,
    )
    assert view.state("second") == {"call": 1, "head": 2} and view.cut_off() == []
    a, b = (view.tab.locator(f"#beside-{at} .matrix").bounding_box() for at in (0, 1))
    if width < 760:
        assert b["y"] >= a["y"] + a["height"] and a["x"] == b["x"] and a["width"] > 0.8 * width
    else:
        assert b["x"] >= a["x"] + a["width"] and a["y"] == b["y"]
