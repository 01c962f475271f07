"""Lines between tokens in a real browser: their widths against the exact weights, and how rows and keys are chosen."""

import numpy as np
import pytest

import regard as rg
from regard.lens.runs.codes import FINE_ERROR
from regard.lens.viewer import embed, page
from tests.support.browser import Opened, example, fault

LEAST = 0.005  # the smallest weight that has a line
BEGIN = {
    "call": 0,
    "head": 0,
    "second": None,
    "query": 5,
    "key": None,
    "pins": [],
    "lines": "all",
    "hideSpecial": False,
}
DRAWN = """() => [...document.querySelectorAll("#lines-svg line")]
    .filter((line) => getComputedStyle(line).display !== "none" && getComputedStyle(line.parentNode).display !== "none")
    .map((line) => [line.parentNode.dataset.head, line.parentNode.dataset.row, line.dataset.key,
        line.getAttribute("stroke-width"), line.getAttribute("stroke-opacity")].map(Number))"""


@pytest.fixture(scope="module")
def shown(kept_open):
    """One page for many tests: a causal run of 12 tokens, and its exact weights."""
    run, exact = example(n=12, mask=rg.causal())
    return kept_open(page(run)), exact


@pytest.fixture
def home(shown):
    """The same, as it was when it was opened, with the lines in sight."""
    view, exact = shown
    view.tab.mouse.move(0, 0)
    view.tab.evaluate("document.activeElement.blur()")
    view.choose(**BEGIN)
    view.reach("lines")
    view.settled()
    return view, exact


def lines(view, head=0):
    """The visible lines of the first or the second head: {(row, key): (width, opacity)}."""
    found = view.tab.evaluate(DRAWN)
    return {(int(i), int(j)): (width, opacity) for number, i, j, width, opacity in found if number == head}


def fits(found, p, rows=None, keys=None):
    """Fails unless the lines are those of the weights of these rows and keys, each as wide and opaque as said."""
    chosen = {
        (i, j)
        for i, j in np.argwhere(p >= LEAST).tolist()
        if (rows is None or i in rows) and (keys is None or j in keys)
    }
    assert set(found) == chosen and chosen
    for (i, j), (width, opacity) in found.items():
        assert width == pytest.approx(0.5 + 4.5 * p[i, j], rel=FINE_ERROR)
        assert opacity == pytest.approx(np.sqrt(p[i, j]), rel=FINE_ERROR)


def test_every_line_is_a_weight(home):
    """A line for each weight of 0.5 % or more, none where the mask forbids it; in every head and layer."""
    view, exact = home
    for call, head in ((0, 0), (1, 2)):
        view.choose(call=call, head=head)
        fits(lines(view), exact[call][head])
    assert "layer 1, head 2" in view.text("#lines-title")


def test_the_pointer_and_a_click_show_the_lines_of_one_row(home):
    """Under the pointer a row or a key shows only its lines and weights; a click chooses the row for the whole page."""
    view, exact = home
    p = exact[0][0]
    view.tab.hover("#lines-rows-8")
    fits(lines(view), p, rows=[8])
    shown = view.tab.eval_on_selector_all("#lines-keys data", "nodes => nodes.map((node) => node.textContent)")
    assert shown[9:] == ["masked"] * 3
    assert [float(text.split()[0]) / 100 for text in shown[:9]] == pytest.approx(p[8, :9].tolist(), rel=0.006)
    view.tab.hover("#lines-keys-3")
    fits(lines(view), p, keys=[3])
    assert float(view.text("#lines-rows-8 data").split()[0]) / 100 == pytest.approx(p[8, 3], rel=0.006)
    assert "“word3” (token 3) receives" in view.text("#lines-said")
    view.tab.mouse.move(0, 0)
    fits(lines(view), p)
    view.click("#lines-rows-8")
    view.tab.mouse.move(0, 0)
    assert view.state("query", "lines") == (8, "row")
    fits(lines(view), p, rows=[8])
    assert "“word8” (token 8)" in view.text("#sentence")
    assert view.tab.get_attribute("#words-8", "class").split().count("row") == 1
    view.click("#lines-rows-10", modifiers=["Shift"])
    view.tab.mouse.move(0, 0)
    assert view.state("pins") == [10]
    fits(lines(view), p, rows=[8, 10])
    view.click("#lines-keys-2")
    assert view.state("key") == 2
    view.click("#lines-all")
    view.tab.mouse.move(0, 0)
    fits(lines(view), p)
    assert "lines" not in view.tab.evaluate("address()")
    view.click("#lines-row")
    assert "lines=row" in view.tab.evaluate("address()")


def test_the_keyboard_reaches_every_line(home):
    """Arrow keys move through rows and keys and show their lines without choosing; Enter chooses; leaving shows all."""
    view, exact = home
    p = exact[0][0]
    view.tab.focus("#lines-all")
    view.press("Tab", "Tab")
    assert view.tab.evaluate("document.activeElement.id") == "lines-rows"
    fits(lines(view), p, rows=[5])
    view.press("ArrowDown", "ArrowDown")
    fits(lines(view), p, rows=[7])
    assert view.state("query") == 5
    assert view.tab.get_attribute("#lines-rows", "aria-activedescendant") == "lines-rows-7"
    view.press("Enter")
    assert view.state("query", "lines") == (7, "row")
    view.press("Home")
    fits(lines(view), p, rows=[0])
    view.press("Tab", "End", "ArrowUp")
    fits(lines(view), p, keys=[10])
    view.press("Enter")
    assert view.state("key") == 10
    view.tab.evaluate("document.activeElement.blur()")
    fits(lines(view), p, rows=[7])


def test_the_map_and_the_lines_follow_each_other(home):
    """A row that is chosen elsewhere is marked here; special tokens that are left out of the map have no lines."""
    view, exact = home
    view.choose(query=9, lines="row")
    fits(lines(view), exact[0][0], rows=[9])
    assert view.tab.get_attribute("#lines-rows-9", "aria-selected") == "true"
    view.choose(hideSpecial=True)
    p = exact[0][0].copy()
    p[:, [0, 11]] = 0
    p /= np.maximum(p.sum(-1, keepdims=True), 1e-12)
    found = lines(view)
    assert set(found) == {(9, j) for j in np.flatnonzero(p[9] >= LEAST)}
    for (i, j), (width, _) in found.items():
        assert width == pytest.approx(0.5 + 4.5 * p[i, j], rel=1e-3)
    assert "not the model’s own numbers" in view.text("#lines-note")


def test_two_heads_have_lines_of_two_colours(home):
    """The lines of the second head stand next to those of the first, in the colour of its name."""
    view, exact = home
    view.choose(second={"call": 1, "head": "mean"})
    mean = exact[1].mean(0, dtype=float)

    def both(**part):
        fits(lines(view), exact[0][0], **part)
        second = lines(view, 1)
        assert set(second) == {
            (i, j) for i, j in np.argwhere(mean >= LEAST).tolist() if i in part.get("rows", range(12))
        }
        for (i, j), (width, _) in second.items():
            assert width == pytest.approx(0.5 + 4.5 * mean[i, j], rel=3 * FINE_ERROR)

    both()
    view.tab.hover("#lines-rows-8")
    both(rows=[8])
    colours = view.tab.evaluate(
        """() => [".first-head", ".second-head"].map((name) => getComputedStyle(document.querySelector(name)).color)
            .concat([0, 1].map((head) => getComputedStyle(
                document.querySelector(`#lines-svg g[data-row='8'][data-head='${head}'] line`)).stroke))"""
    )
    assert colours[:2] == colours[2:] and colours[0] != colours[1]
    assert view.text("#lines-title") == "Lines between tokens: layer 0, head 0 and mean of the 3 heads of layer 1"
    best = int(mean[8].argmax())
    assert f"second head: {100 * mean[8, best]:.3g}"[:18] in view.text("#lines-said")
    view.choose(second=None)
    assert lines(view, 1) == {} and view.text("#lines-title").endswith(": layer 0, head 0")


def test_a_long_text_shows_a_window_and_says_so(opened):
    """40 rows around the chosen one, the keys at their positions and the strongest others; the rest is said."""
    run, exact = example(n=200, layers=1, heads=1, mask=rg.causal())
    view = opened(page(run), "#query=120")
    view.reach("lines")

    def window():
        return [
            view.tab.eval_on_selector_all(
                f"#lines-{side} [data-token]", "nodes => nodes.map((node) => Number(node.dataset.token))"
            )
            for side in ("rows", "keys")
        ]

    rows, keys = window()
    assert rows == list(range(100, 140)) and set(rows) < set(keys) and len(keys) == 48
    p = exact[0][0][rows]
    others = np.setdiff1d(np.arange(200), rows)
    assert set(keys) - set(rows) == set(others[np.argsort(-p[:, others].sum(0))[:8]].tolist())
    fits(lines(view), exact[0][0], rows=rows, keys=keys)
    said = view.text("#lines-note")
    assert "Rows 100 to 139 of 200" in said and "48 of 200 keys" in said
    told = float(said.split("keys: ")[1].split(" %")[0]) / 100
    assert told == pytest.approx(p[:, keys].sum() / p.sum(), abs=0.006)
    view.choose(query=139)
    assert window()[0] == rows  # it rests while the row is in it
    view.click("#lines-after")
    view.tab.wait_for_selector("#lines-rows-179", state="attached")
    assert view.state("query") == 179 and window()[0] == list(range(159, 199))
    view.tab.focus("#lines-rows")
    view.press("End")
    view.tab.wait_for_selector("#lines-rows-199", state="attached")
    assert view.state("query") == 179 and window()[0][-1] == 199
    view.choose(hover={"row": 3, "column": 3})
    assert window()[0][-1] == 199  # the window stays where the keyboard has led
    assert view.tab.is_disabled("#lines-after") and view.tab.is_enabled("#lines-before")
    rows, keys = window()
    level = [view.tab.locator(f"#lines-{side}-{rows[5]}").bounding_box()["y"] for side in ("rows", "keys")]
    assert rows[5] in keys and level[0] == level[1]  # a row is level with the key at its position
    assert view.text(f"#lines-rows-{rows[5]} i") == str(rows[5])


@pytest.mark.sweep
def test_a_served_page_requests_the_rows_that_are_in_sight(chromium):
    """Of a head larger than a tile: none before the lines are near the window, then those of the window of rows; the
    numbers are exact.
    """
    pytest.importorskip("uvicorn", reason="uvicorn is not installed")
    from regard.lens.viewer.server import Server

    run, exact = example(n=300, layers=1, heads=1, mask=rg.causal())
    with Server(run) as served:
        view = Opened(chromium, served.address, "#query=120", viewport={"width": 1300, "height": 400})
        asked = {url for url in view.asked if "/row/" in url}
        assert len(asked) <= 2  # the text shows the chosen row
        view.tab.locator("#lines").scroll_into_view_if_needed()
        view.tab.wait_for_selector("#lines-svg line", state="attached")
        asked = {url for url in view.asked if "/row/" in url}
        assert len(asked) == 40
        rows = range(100, 140)
        keys = view.tab.eval_on_selector_all("#lines-keys [data-token]", "n => n.map((e) => Number(e.dataset.token))")
        fits(lines(view), exact[0][0], rows=rows, keys=keys)
        assert not view.said
        view.context.close()


def test_invalid_weights_and_approximate_ones_have_lines_of_their_own(opened, monkeypatch):
    """NaN and forbidden weights are dashed in the colours of the legend; means of a page in part are dashed."""
    run, exact = example(n=12, layers=1, heads=1, mask=rg.causal())
    given = np.array(exact[0], np.float32)
    given[0, 4, 2], given[0, 6, 9] = np.nan, 0.3
    view = opened(page(fault(run, given=given, q=None, k=None)))
    view.tab.locator("#lines").scroll_into_view_if_needed()
    view.tab.wait_for_selector("#lines-svg line.nan", state="attached")
    kinds = view.tab.evaluate(
        """() => [...document.querySelectorAll("#lines-svg line[class]")]
            .map((line) => [Number(line.parentNode.dataset.row), Number(line.dataset.key), line.className.baseVal])"""
    )
    assert sorted(kinds) == [[4, 2, "nan"], [6, 9, "leak"]]
    monkeypatch.setattr(embed, "WHOLE", 1)
    monkeypatch.setattr(embed, "FULLEST", 4)
    view = opened(page(example(n=60, layers=1, heads=1)[0]), "#query=30")
    view.reach("lines")
    dashed = view.tab.eval_on_selector_all(
        "#lines-svg g[data-row='30'] line",
        "nodes => nodes.map((node) => [Number(node.dataset.key), node.hasAttribute('stroke-dasharray')])",
    )
    sure = view.asks("row", 0, 0, 0, 30)["sure"]
    assert dashed and all(mean == (not sure[j]) for j, mean in dashed)
    assert "dashed lines are means" in view.text("#lines-note")


@pytest.mark.one_in(3)
@pytest.mark.parametrize("width", [360, 900, 1300])
def test_the_lines_fit_the_window(opened, width):
    """Nothing is cut off, and the columns of tokens and the lines between them keep their room."""
    view = opened(page(example(n=12, mask=rg.causal())[0]), viewport={"width": width, "height": 800})
    view.reach("lines")
    assert view.cut_off() == []
    rows, svg, keys = (view.tab.locator(f"#lines-{name}").bounding_box() for name in ("rows", "svg", "keys"))
    assert rows["x"] + rows["width"] <= svg["x"] + 1 and svg["x"] + svg["width"] <= keys["x"] + 1
    assert svg["width"] >= 80 and rows["height"] == svg["height"] == keys["height"]
    lines = view.tab.eval_on_selector_all(
        "#lines-keys data", "nodes => nodes.map((node) => [node.scrollWidth - node.clientWidth, node.offsetHeight])"
    )
    assert max(over for over, _ in lines) <= 0 and len({high for _, high in lines}) == 1
    names = view.tab.eval_on_selector_all(
        "#lines-keys bdi", "nodes => nodes.map((node) => node.scrollWidth - node.clientWidth)"
    )
    assert max(names) <= 1  # short words are whole


def test_right_to_left_words_stand_at_their_lines(opened):
    """As close to the ends of the lines as words that read from the left, on both sides, and in their own direction."""
    run, _ = example(4, 1, 1, tokens=("[CLS]", " الحيوان!", " word", "[SEP]"))
    view = opened(page(run))
    view.reach("lines")
    gaps = view.tab.evaluate(
        """() => {
            const [svg, range] = [$("lines-svg").getBoundingClientRect(), document.createRange()];
            const text = (side, i) => {
                range.selectNodeContents($(`lines-${side}-${i}`).querySelector("bdi"));
                return range.getBoundingClientRect();
            };
            return [1, 2].map((i) => [svg.left - text("rows", i).right, text("keys", i).left - svg.right]);
        }"""
    )
    assert np.ptp(gaps, 0).max() <= 2 and np.max(gaps) < 24
    assert view.tab.eval_on_selector("#lines-keys-1 bdi", "node => getComputedStyle(node).direction") == "rtl"
