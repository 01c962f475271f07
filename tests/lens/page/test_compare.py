"""Two runs compared in a real browser: one view, one scale, differences against the exact ones, and an edge to draw
along.
"""

import dataclasses
import re

import numpy as np
import pytest

import regard as rg
from regard.lens.runs.codes import FINE_ERROR
from regard.lens.viewer import page
from tests.lens.page.colors import distance, logarithmic, tint
from tests.support.browser import HOSTILE, example, fault
from tests.support.browser import share as first_share
from tests.support.page_map import BEGIN, DIGITS, Map, share


def stronger(q, k):
    """Changes a run as a wrong scale does."""
    np.multiply(q, 1.7, out=q)


@pytest.fixture(scope="module")
def shown(kept_open):
    """A page of two runs over 12 tokens, one of which has another name: (first map, second map, exact weights of
    both).
    """
    ours, exact = example(n=12, mask=rg.causal())
    names = [f" word{i}" if i != 4 else " other" for i in range(12)]
    names[0], names[11] = "[CLS]", "[SEP]"
    theirs, other = example(n=12, mask=rg.causal(), tokens=names, poison=stronger)
    view = kept_open(page(ours, dataclasses.replace(theirs, model="another")))
    return Map(view, "comparison.plots[0]"), Map(view, "comparison.plots[1]"), exact, other


@pytest.fixture
def home(shown):
    """The same, as it was when it was opened."""
    shown[0].tab.evaluate("comparison.edge.at = 0.5; document.activeElement.blur()")
    shown[0].view.choose(**BEGIN | {"run": 0, "compare": "side"})
    return shown


def test_both_maps_share_their_view_and_their_scale(home):
    """A weight has one colour in both maps, and what is pinned in one is pinned in the other."""
    first, second, exact, other = home
    for chart, p in ((first, exact[0][0]), (second, other[0][0])):
        for cell in [(3, 1), (9, 4), (11, 7)]:
            assert distance(chart.pixel(*cell), logarithmic(p[cell])) <= 1
    second.click(9, 2)
    assert second.view.state("query", "key", "run") == (9, 2, 1)  # other screens show the run that was meant
    assert share(second.view.text("#map-pinned")) == pytest.approx(other[0][0, 9, 2], rel=DIGITS)
    first.view.click("#compare-run [value='0']")
    assert first.view.state("run") == 0


def test_words_give_both_weights_and_their_difference(home):
    """Under the pointer stand the weights of both runs and second − first, in points of a hundred."""
    first, _, exact, other = home
    first.hover(9, 4)
    before, after = first.view.text("#compare-said").split(" in the first, ")
    p, q = exact[0][0, 9, 4], other[0][0, 9, 4]
    assert (share(before), first_share(after)) == pytest.approx((p, q), rel=DIGITS)
    points = float(after.rsplit(": ", 1)[1].removesuffix(" points").replace("−", "-"))
    assert points / 100 == pytest.approx(q - p, rel=DIGITS, abs=2 * FINE_ERROR)


@pytest.mark.parametrize("law", ["difference", "logarithmic"])
def test_a_difference_has_a_colour_on_a_domain_that_never_moves(home, law):
    """The colour of a cell is the diverging ramp's at the place of the exact difference; the legend names the law and
    its ends.
    """
    first, _, exact, other = home
    first.view.click(f"#compare-mode [value={law}]")
    assert first.tab.is_hidden("#compare-1")
    words = first.view.text("#compare-law")
    assert ("linear" if law == "difference" else "signed logarithm") in words
    assert "−100 % to 100 %" in words
    first.view.choose(head=2, query=11)
    for cell in [(3, 1), (5, 2), (7, 7), (9, 4), (10, 3)]:
        d = other[0][2][cell] - exact[0][2][cell]
        part = d if law == "difference" else np.sign(d) * max(0, logarithmic(abs(d)))
        assert distance(first.pixel(*cell), 0.5 + part / 2, "diverging-light") <= 1, (cell, d)


def test_an_edge_lays_one_run_over_the_other(home):
    """Left of the edge are the cells of the first run, right of it those of the second; it is moved by keys. The
    kind of comparison is chosen by keyboard, too.
    """
    first, _, *both = home
    first.tab.focus("#compare-mode [value=side]")
    first.view.press("ArrowRight")
    assert first.view.state("compare") == "difference"
    first.tab.evaluate("document.activeElement.blur()")
    first.view.press("c", "c")
    assert "compare=swipe" in first.tab.evaluate("address()")
    first.view.choose(query=11)
    cells = [(8, 2), (10, 3), (10, 8)]

    def drawn():
        """Of which run each of the cells is."""
        apart = [[distance(first.pixel(*cell), logarithmic(exact[0][0][cell])) for exact in both] for cell in cells]
        return np.argmin(apart, 1).tolist()

    assert drawn() == [0, 0, 1]
    first.tab.focus(".edge")
    first.view.press("PageDown", "PageDown")
    first.tab.wait_for_selector(".edge[role=slider][aria-valuenow='10']")
    assert drawn() == [1, 1, 1]
    first.view.press("End")
    first.tab.wait_for_selector(".edge[aria-valuenow='100']")
    assert drawn() == [0, 0, 0]


def test_the_heads_that_differ_most_come_first_with_their_rows(home):
    """The table is in falling order of the row's difference, half the sum of |p₁ − p₀|, and names the figure of each
    head that differs most.
    """
    first, _, exact, other = home
    first.view.choose(query=9)
    first.tab.wait_for_selector("#compare-heads:not([aria-busy])", state="attached")
    apart = np.abs(np.subtract(other, exact)[:, :, 9])
    by = apart.sum(-1) / 2
    lines = first.view.each("#compare-heads tbody tr", "[...node.cells].map((cell) => cell.textContent)")
    order = [np.unravel_index(at, by.shape) for at in np.argsort(-by, axis=None)]
    assert [line[0] for line in lines] == [f"layer {call}, head {head}" for call, head in order]
    assert [first_share(line[1]) for line in lines] == pytest.approx([by[at] for at in order], rel=0.06)
    assert all(re.fullmatch(r"(< )?[\d.]+( %)? → (< )?[\d.]+( %)?", line[3]) for line in lines)
    said = first.view.text("#compare-row")
    assert first_share(said.split("differs by ")[1]) == pytest.approx(by[0, 0], rel=DIGITS)
    assert f"(token {apart[0, 0].argmax()})" in said.split("most at")[1]
    first.view.click("#compare-heads tbody tr:nth-child(2) button")
    assert first.view.state("call", "head") == order[1]


def test_masks_that_differ_and_faults_are_not_differences(opened):
    """What is masked in one run alone, not a number, or forbidden has a colour of its own, which is no place of the
    ramp.
    """
    run, exact = example(n=10, layers=1, heads=1, mask=rg.causal())
    p = exact[0].copy()
    p[0, 6, 2], p[0, 3, 8] = np.nan, 0.25
    runs = fault(run, given=p, q=None, k=None), fault(run, given=exact[0], q=None, k=None, mask=None)
    view = opened(page(*runs), "#compare=difference")
    chart = Map(view, "comparison.plots[0]")
    for cell, name in {(6, 2): "--nan", (3, 8): "--leak", (2, 6): "--out"}.items():
        assert chart.pixel(*cell)[:3] == tint(view, name)
    assert distance(chart.pixel(5, 4), 0.5, "diverging-light", 0) == 0  # equal weights are in the middle


def test_nothing_is_cut_off_and_hostile_tokens_are_only_words(opened):
    """The comparison fits, in each of its kinds; tokens that differ are shown as text."""
    runs = [example(len(HOSTILE), layers=1, heads=1, tokens=HOSTILE[::step])[0] for step in (1, -1)]
    view = opened(page(*runs))
    for kind in ("side", "difference", "swipe"):
        view.choose(compare=kind)
        view.fits(390)
    assert view.tab.evaluate("window.harmed") is None
