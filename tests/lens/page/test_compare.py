"""Two runs compared in a real browser: one view, one scale, differences against the exact ones, and an edge to draw
along.
"""

import dataclasses

import numpy as np
import pytest

import regard as rg
from regard.lens.drawing.ramp import ramp
from regard.lens.runs.codes import FINE_ERROR
from regard.lens.viewer import page
from tests.support.browser import HOSTILE, example, fault
from tests.support.page_map import DIGITS, Map

BEGIN = {
    "run": 0,
    "call": 0,
    "head": 0,
    "query": 0,
    "key": None,
    "view": None,
    "compare": "side",
    "scale": "log",
    "pool": "share",
}


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
    shown[0].view.choose(**BEGIN)
    return shown


def test_both_maps_share_their_view_and_their_scale(home):
    """A weight has one colour in both maps, and what moves or is pinned in one moves and is pinned in the other."""
    first, second, exact, other = home
    for chart, p in ((first, exact), (second, other)):
        for i, j in [(3, 1), (9, 4), (11, 7)]:
            at = round(255 * min(1, max(0, 1 + np.log10(p[0][0, i, j]) / 6)))
            steps = ramp("light").astype(int)[max(0, at - 2) : at + 3]
            assert np.abs(steps - chart.pixel(i, j)[:3]).sum(-1).min() <= 1
    first.tab.mouse.dblclick(*first.at(8, 8))
    first.view.settled()
    assert first.seen()["span"] == pytest.approx(6, rel=0.01)
    assert first.seen() == second.seen()
    first.view.choose(view=None)
    second.click(9, 2)
    assert second.view.state("query", "key") == (9, 2)
    assert second.view.state("run") == 1  # the other screens show the numbers of the run that was meant
    assert second.tab.get_attribute("#compare-run [value='1']", "aria-checked") == "true"
    said = second.view.text("#map-pinned")
    assert float(said.rsplit(":", 1)[1].split(" %")[0]) / 100 == pytest.approx(other[0][0, 9, 2], rel=DIGITS)
    first.view.click("#compare-run [value='0']")
    assert first.view.state("run") == 0


def test_scales_by_row_know_the_rows_of_both_runs(home):
    """The share of the row's largest is that of each run's own row."""
    first, second, exact, other = home
    first.view.choose(scale="row", query=11)
    for chart, p in ((first, exact), (second, other)):
        for i, j in [(9, 4), (9, 6)]:
            at = round(255 * p[0][0, i, j] / p[0][0, i].max())
            steps = ramp("light").astype(int)[max(0, at - 8) : at + 9]
            assert np.abs(steps - chart.pixel(i, j)[:3]).sum(-1).min() <= 1


def test_words_give_both_weights_and_their_difference(home):
    """Under the pointer stand the weights of both runs and second − first, in points of a hundred."""
    first, _, exact, other = home
    first.hover(9, 4)
    before, after = first.view.text("#compare-said").split(" in the first, ")
    p, q = exact[0][0, 9, 4], other[0][0, 9, 4]
    assert float(before.rsplit(":", 1)[1].split(" %")[0]) / 100 == pytest.approx(p, rel=DIGITS)
    assert float(after.split(" %")[0]) / 100 == pytest.approx(q, rel=DIGITS)
    points = float(after.rsplit(": ", 1)[1].removesuffix(" points").replace("−", "-"))
    assert points / 100 == pytest.approx(q - p, rel=DIGITS, abs=float(2 * FINE_ERROR * max(p, q)))


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
    colours = ramp("diverging-light").astype(int)
    for head in (0, 2):
        first.view.choose(head=head, query=11)
        for i, j in [(3, 1), (5, 2), (7, 7), (9, 4), (10, 3)]:
            p, q = exact[0][head, i, j], other[0][head, i, j]
            slack = 2 * FINE_ERROR * max(p, q)
            ends = []
            for d in (q - p - slack, q - p + slack):
                x = (
                    0.5 + d / 2
                    if law == "difference"
                    else 0.5 + np.sign(d) / 2 * max(0, 1 + np.log10(max(abs(d), 1e-12)) / 6)
                )
                ends.append(round(255 * x))
            steps = colours[max(0, min(ends) - 1) : max(ends) + 2]
            assert np.abs(steps - first.pixel(i, j)[:3]).sum(-1).min() <= 1, (head, i, j, p, q)


def test_an_edge_lays_one_run_over_the_other(home):
    """Left of the edge are the cells of the first run, right of it those of the second; it is dragged, and moved by
    keys.
    """
    first, _, exact, other = home
    first.view.click("#compare-mode [value=swipe]")
    first.view.choose(query=11)

    def drawn(i, j):
        distance = []
        for p in (exact, other):
            at = round(255 * min(1, max(0, 1 + np.log10(p[0][0, i, j]) / 6)))
            distance.append(
                np.abs(ramp("light").astype(int)[max(0, at - 2) : at + 3] - first.pixel(i, j)[:3]).sum(-1).min()
            )
        return distance.index(min(distance))

    cells = [(8, 2), (10, 3), (10, 8)]
    assert all(abs(np.log10(exact[0][0, i, j] / other[0][0, i, j])) > 0.2 for i, j in cells)
    assert [drawn(*cell) for cell in cells] == [0, 0, 1]
    first.tab.focus(".edge")
    first.view.press("PageDown", "PageDown")
    first.tab.wait_for_selector(".edge[aria-valuenow='10']")
    assert [drawn(*cell) for cell in cells] == [1, 1, 1]
    box = first.tab.query_selector(".edge").bounding_box()
    first.tab.mouse.move(box["x"] + 11, box["y"] + 40)
    first.tab.mouse.down()
    first.tab.mouse.move(first.at(10, 11)[0], box["y"] + 40)
    first.tab.mouse.up()
    first.tab.wait_for_function("() => document.querySelector('.edge').getAttribute('aria-valuenow') > 90")
    assert [drawn(*cell) for cell in cells] == [0, 0, 0]
    assert first.tab.get_attribute(".edge", "role") == "slider"


def test_the_heads_that_differ_most_come_first_with_their_rows(home):
    """The table is in falling order of the row's difference, half the sum of |p₁ − p₀|, and names the figure of each
    head that differs most.
    """
    first, _, exact, other = home
    first.view.choose(query=9)
    first.tab.wait_for_selector("#compare-heads:not([aria-busy])", state="attached")
    lines = first.tab.eval_on_selector_all(
        "#compare-heads tbody tr", "(rows) => rows.map((row) => [...row.cells].map((cell) => cell.textContent))"
    )
    assert len(lines) == 6
    by = []
    for name, row, _, change in lines:
        call, head = (int(word) for word in name.replace(",", "").split() if word.isdigit())
        assert [float(part.removesuffix(" %").removeprefix("< ")) >= 0 for part in change.split(" → ")] == [True, True]
        by.append(np.abs(other[call][head, 9] - exact[call][head, 9]).sum() / 2)
        assert float(row.removesuffix(" %")) / 100 == pytest.approx(by[-1], rel=0.06)
    assert by == sorted(by, reverse=True)
    said = first.view.text("#compare-row")
    assert float(said.split("differs by ")[1].split(" %")[0]) / 100 == pytest.approx(
        np.abs(other[0][0, 9] - exact[0][0, 9]).sum() / 2, rel=DIGITS
    )
    at = np.abs(other[0][0, 9] - exact[0][0, 9]).argmax()
    assert f"(token {at})" in said.split("most at")[1]
    first.view.click("#compare-heads tbody tr:nth-child(2) button")
    assert f"layer {first.view.state('call')}, head {first.view.state('head')}" == lines[1][0]


def test_the_axis_says_where_tokens_differ(home):
    """Tokens that are not the same in both runs are named, and marked beside the map."""
    first, *_ = home
    assert first.view.text("#compare-tokens").strip() == "1 token replaced: “word4” → “other”."
    out = first.tab.evaluate("css('--out').match(/[0-9a-f]{2}/gi).map((pair) => parseInt(pair, 16))")

    def mark(j):
        x, y = first.tab.evaluate(
            (
                "(j) => { const plot = comparison.plots[0], at = plot.view(); return [plot.left + (j + 0.5) * "
                "at.kx, plot.top - 2]; }"
            ),
            j,
        )
        return first.view.pixel("#compare-0 .matrix", int(x), int(y))[:3]

    assert mark(4) == out
    assert mark(5) != out


def test_the_kind_of_comparison_is_chosen_by_keyboard_and_kept_in_the_address(home):
    """Arrows move through the kinds, c goes on to the next, and the address holds it."""
    first, *_ = home
    first.tab.focus("#compare-mode [value=side]")
    first.view.press("ArrowRight")
    assert first.view.state("compare") == "difference"
    first.tab.evaluate("document.activeElement.blur()")
    first.view.press("c", "c")
    assert first.view.state("compare") == "swipe"
    assert "compare=swipe" in first.tab.evaluate("address()")


def test_masks_that_differ_and_faults_are_not_differences(opened):
    """What is masked in one run alone, not a number, or forbidden has a colour of its own, which is no place of the
    ramp.
    """
    run, exact = example(n=10, layers=1, heads=1, mask=rg.causal())
    bare = {"q": None, "k": None, "v": None, "x": None, "out": None}
    p = exact[0].copy()
    p[0, 6, 2], p[0, 3, 8] = np.nan, 0.25
    view = opened(
        page(fault(run, given=p, **bare), fault(run, given=exact[0], mask=None, **bare)), "#compare=difference"
    )
    chart = Map(view, "comparison.plots[0]")
    for (i, j), name in {(6, 2): "--nan", (3, 8): "--leak", (2, 6): "--out"}.items():
        tint = view.tab.evaluate("(name) => css(name).match(/[0-9a-f]{2}/gi).map((pair) => parseInt(pair, 16))", name)
        assert chart.pixel(i, j)[:3] == tint
    assert chart.pixel(5, 4)[:3] == ramp("diverging-light")[128].tolist()  # equal weights are in the middle


def test_runs_of_one_model_are_how_to_pass(opened):
    """Each is called first or second, and by the name of its folder where that is known; every row of a swiped map is
    drawn whole.
    """
    run, _ = example(n=16)
    named = [dataclasses.replace(run, facts={"folder": f"/runs/{name}"}) for name in ("before/", "after")]
    view = opened(page(*named), "#compare=swipe", viewport={"width": 1440, "height": 900})
    assert view.text(".compare-names").split()[:6] == ["first", "toy", "before", "second", "toy", "after"]
    last, height = view.tab.evaluate(
        """(() => {
            const plot = comparison.plots[0], at = plot.view();
            return [plot.top + (16 - at.row) * at.ky, plot.canvas.clientHeight];
        })()"""
    )
    assert last <= height


def test_nothing_is_cut_off_and_hostile_tokens_are_only_words(opened):
    """At every width the comparison fits, in each of its kinds; tokens that differ are shown as text."""
    ours, _ = example(len(HOSTILE), layers=1, heads=1, tokens=HOSTILE)
    theirs, _ = example(len(HOSTILE), layers=1, heads=1, tokens=HOSTILE[::-1], poison=stronger)
    view = opened(page(ours, theirs))
    inside = "[...document.querySelectorAll('#compare *')].filter((node) => node.checkVisibility()"
    for width in (390, 1024, 1900):
        view.tab.set_viewport_size({"width": width, "height": 850})
        for kind in ("side", "difference", "swipe"):
            view.choose(compare=kind)
            assert (
                view.tab.evaluate(
                    f"{inside} && node.getBoundingClientRect().right > innerWidth + 1).map((node) => node.id)"
                )
                == []
            )
    assert view.tab.evaluate("window.harmed") is None
