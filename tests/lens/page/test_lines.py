"""Lines between tokens in a real browser: their widths against the exact weights, and how rows and keys are chosen."""

import numpy as np
import pytest

import regard as rg
from regard.lens.runs.codes import FINE_ERROR
from tests.support.browser import example, share, spoiled

LEAST = 0.005  # the smallest weight that has a line
DRAWN = """() => [...document.querySelectorAll("#lines-svg line")]
    .filter((line) => getComputedStyle(line).display !== "none" && getComputedStyle(line.parentNode).display !== "none")
    .map((line) => [line.parentNode.dataset.head, line.parentNode.dataset.row, line.dataset.key,
        line.getAttribute("stroke-width"), line.getAttribute("stroke-opacity")].map(Number))"""


@pytest.fixture
def home(home):
    """The page with the lines in sight, and its exact weights."""
    view, _, exact = home
    view.choose(query=5)
    view.reach("lines")
    return view, exact


def lines(view, head=0):
    """The visible lines of the first or the second head: {(row, key): (width, opacity)}."""
    found = view.tab.evaluate(DRAWN)
    return {(int(i), int(j)): (width, opacity) for number, i, j, width, opacity in found if number == head}


def fits(found, p, rows=None, keys=None, rel=FINE_ERROR):
    """Fails unless the lines are those of the weights of these rows and keys, each as wide and opaque as said."""
    kept = np.zeros(p.shape, bool)
    kept[np.ix_(*(range(n) if part is None else part for part, n in zip((rows, keys), p.shape)))] = True
    assert sorted(found) == [*map(tuple, np.argwhere(kept & (p >= LEAST)).tolist())] and found
    for at, drawn in found.items():
        assert drawn == pytest.approx((0.5 + 4.5 * p[at], np.sqrt(p[at])), rel=rel)


def test_every_line_is_a_weight(home):
    """A line for each weight of 0.5 % or more, none where the mask forbids it."""
    view, exact = home
    view.choose(call=1, head=2)
    fits(lines(view), exact[1][2])
    assert "layer 1, head 2" in view.text("#lines-title")


def test_the_pointer_and_a_click_show_the_lines_of_one_row(home):
    """Under the pointer a row or a key shows only its lines and weights; a click chooses the row for the whole page."""
    view, exact = home
    p = exact[0][0]
    view.tab.hover("#lines-rows-8")
    fits(lines(view), p, rows=[8])
    shown = view.each("#lines-keys data")
    assert shown[9:] == ["masked"] * 3
    assert [share(text) for text in shown[:9]] == pytest.approx(p[8, :9], rel=0.006)
    view.tab.hover("#lines-keys-3")
    fits(lines(view), p, keys=[3])
    assert share(view.text("#lines-rows-8 data")) == pytest.approx(p[8, 3], rel=0.006)
    assert "“word3” (token 3) receives" in view.text("#lines-said")
    view.click("#lines-rows-8")
    view.click("#lines-rows-10", modifiers=["Shift"])
    view.click("#lines-keys-2")
    view.tab.mouse.move(0, 0)
    assert view.state("query", "lines", "pins", "key") == (8, "row", [10], 2)
    fits(lines(view), p, rows=[8, 10])


def test_a_long_text_shows_a_window_and_says_so(opened):
    """40 rows around the chosen one, the keys at their positions, the strongest others of the chosen row and of all;
    the rest is said.
    """
    run, exact = example(n=200, layers=1, heads=1, mask=rg.causal())
    view = opened(run, "#query=120")
    view.reach("lines")
    answer = "Number(node.dataset.token)"
    rows, keys = (view.each(f"#lines-{side} [data-token]", answer) for side in ("rows", "keys"))
    p = exact[0][0][rows]
    others = np.setdiff1d(np.arange(200), rows)
    assert rows == list(range(100, 140))
    own = others[np.argsort(-p[20, others])[:4]]
    more = np.setdiff1d(others, own)
    assert set(keys) == {*rows, *own.tolist(), *more[np.argsort(-p[:, more].sum(0))[:4]].tolist()}
    fits(lines(view), exact[0][0], rows, sorted(keys))
    said = view.text("#lines-note")
    assert "Rows 100 to 139 of 200" in said and "48 of 200 keys" in said
    assert share(said.split("keys: ")[1]) == pytest.approx(p[:, keys].sum() / p.sum(), abs=0.006)
    view.click("#lines-after")
    view.tab.wait_for_selector("#lines-rows-179", state="attached")
    assert view.each("#lines-rows [data-token]", answer) == list(range(140, 180))


def test_invalid_weights_have_lines_of_their_own(opened):
    """NaN and forbidden weights are dashed in the colours of the legend."""
    run, exact = example(n=60, layers=1, heads=1, mask=rg.causal())
    view = opened(spoiled(run, exact[0], {(0, 34, 2): np.nan, (0, 36, 39): 0.3}), "#query=30")
    view.reach("lines")
    kinds = view.each("#lines-svg line[class]", "[node.parentNode.dataset.row, node.className.baseVal]")
    assert sorted(kinds) == [["34", "nan"], ["36", "leak"]]
