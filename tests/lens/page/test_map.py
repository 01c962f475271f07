"""The map of a head in a real browser: its cells against the exact weights, how it moves, what is said about it; and of
a long run, whose cells stand for many, in pictures that are drawn once.
"""

import re

import numpy as np
import pytest

import regard as rg
from regard.lens.look import of_arrays
from regard.lens.runs.codes import COARSE_ERROR
from tests.lens.page.colors import distance, logarithmic, tint
from tests.support.browser import example, share, spoiled
from tests.support.engines import normal
from tests.support.page_map import BEGIN, DIGITS, Map


@pytest.fixture
def home(home):
    """The map of the page, and its exact weights."""
    view, _, exact = home
    return Map(view), exact


def test_every_cell_has_the_colour_of_its_weight(home):
    """The colour of a cell is the ramp's at the place of the exact weight, by the formula of each scale, to within the
    step of its code; masked cells have none.
    """
    chart, exact = home
    p = exact[0][1]
    for scale in ("near", "log", "linear", "lift"):
        chart.view.choose(head=1, query=11, scale=scale)
        name = "diverging-light" if scale == "lift" else "light"
        slack = 2 + int(255 * COARSE_ERROR) if scale == "linear" else 2
        for i, j in [(3, 1), (7, 2), (10, 0)]:
            place = {
                "near": 1 + np.log10(p[i, j]) / 3,
                "log": logarithmic(p[i, j]),
                "linear": p[i, j],
                "lift": 0.5 + np.log2(p[i, j] * (i + 1)) / 12,
            }[scale]
            assert distance(chart.pixel(i, j), place, name, slack) <= 1, (scale, i, j, p[i, j])
    ground = chart.pixel(2, 9)  # masked: hatching on plain ground, which is no colour of a large weight
    assert distance(ground, 1) > 200 and distance(ground, 1, "diverging-light") > 200


def test_value_weighted_colors_are_shares_of_the_output(opened):
    """p‖v‖ of each pair as a share of its row, on the map and in the pictures of all heads, of short and of long texts,
    while the words stay those of weights. Where no values are known, the map says so.
    """
    q, k, v = normal(3, 2, 60, 8)
    v *= np.geomspace(0.1, 5, 60, dtype=np.float32)[:, None]
    for n in (12, 60):
        run = rg.look(q[:, :n], k=k[:, :n], v=v[:, :n])
        view = opened(run, "#head=1&query=7&scale=values")
        share_of_row = run.calls[0].weights()[1] * run.calls[0].lengths[1]
        share_of_row /= share_of_row.sum(1, keepdims=True)
        chart = Map(view)
        places = [(7, int(share_of_row[7].argmax())), (2, n - 2), (9, 4)]
        for i, j in places:
            assert distance(chart.pixel(i, j), share_of_row[i, j], slack=8) <= 1, (n, i, j)
        assert "‖v‖ of each pair as a share of its row" in view.text("#map-level")
        assert share(view.text("#strongest-list .entry .number:not(.soft)")) == pytest.approx(
            run.calls[0].weights()[1, 7].max(), rel=DIGITS
        )
        asked = "valuedSource.overview('values 0', 0).then(({ codes }) => [...codes].map((code) => COARSE[code]))"
        codes = view.tab.evaluate(asked)
        np.testing.assert_allclose(np.reshape(codes, (2, n, n))[1], share_of_row, rtol=COARSE_ERROR, atol=1e-6)
    view.choose(head="mean")
    assert "the lengths of the values are not known" in view.text("#map-level")


def test_the_wheel_zooms_where_the_pointer_is_and_leaves_the_page_to_be_scrolled(home):
    """With Ctrl the cell under the pointer stays under it; otherwise the page scrolls and the map stays."""
    chart, _ = home
    chart.tab.mouse.move(*chart.at(8, 8))
    chart.tab.mouse.wheel(0, -300)
    chart.view.settled()
    assert chart.view.state("view") is None
    x, y = chart.at(8, 8)
    chart.tab.mouse.move(x, y)
    chart.tab.keyboard.down("Control")
    chart.tab.mouse.wheel(0, -80)
    chart.tab.keyboard.up("Control")
    chart.view.settled()
    assert chart.seen()["span"] == pytest.approx(6, rel=0.01)
    assert chart.at(8, 8) == pytest.approx((x, y), abs=chart.seen()["kx"] * 0.51)


def test_a_click_pins_a_cell_and_says_its_exact_weight(home):
    """Row and key of the cell are chosen, the words hold the exact weight, and the table around it that of its
    neighbours.
    """
    chart, exact = home
    chart.click(8, 3)
    assert chart.view.state("query", "key") == (8, 3)
    said = chart.view.text("#map-pinned")
    assert said.startswith("“word8” (token 8) → “word3” (token 3): ") and said.endswith(", exact")
    assert share(said) == pytest.approx(exact[0][0, 8, 3], rel=DIGITS)
    assert said in chart.tab.get_attribute("#map .matrix", "aria-label")
    cells = np.reshape(chart.view.each("#map-table td")[1:], (5, 5))
    around = exact[0][0][6:11, 1:6]
    masked = ~np.tri(5, k=5, dtype=bool)
    assert (cells == np.where(masked, "masked", cells)).all()
    for text, p in zip(cells[~masked], around[~masked]):
        assert text.startswith("below") if p < 1e-6 else share(text) == pytest.approx(p, rel=DIGITS)
    for pins in ([5], []):
        chart.click(5, 2, modifiers=["Shift"])
        assert chart.view.state("query", "pins") == (8, pins)


def test_the_map_is_driven_by_the_keyboard(home):
    """With the focus on the canvas, arrows move the pinned cell by one, Home and End go to the edges, and + − 0
    zoom.
    """
    chart, exact = home
    chart.tab.focus("#map .matrix")
    for keys, cell in (
        (["ArrowRight", "ArrowDown", "ArrowDown", "ArrowRight"], (2, 1)),
        (["End"], (2, 11)),
        (["Home", "PageDown"], (11, 0)),
    ):
        chart.view.press(*keys)
        assert chart.view.state("query", "key") == cell
    assert share(chart.view.text("#map-pinned")) == pytest.approx(exact[0][0, 11, 0], rel=DIGITS)
    chart.view.press("+")
    at = chart.seen()
    assert at["span"] == pytest.approx(6, rel=0.01)
    assert at["row"] + chart.tab.evaluate("map.plot.height") / at["ky"] >= 12 - 1e-6  # the pinned row is still seen
    chart.view.press("-", "0")
    assert chart.view.state("view") is None


def test_a_matrix_of_other_proportions_is_fitted(opened):
    """With many more keys than rows a cell is some keys of one row; it holds the pool of just these."""
    run, exact = example(n=7, layers=1, heads=1, keys=1300)
    chart = Map(opened(run))
    wide = int(re.match(r"each cell is 1 × (\d+) ", chart.view.text("#map-level"))[1])
    j = 400 // wide * wide
    said = chart.hover(3, j + wide / 2 - 0.5)
    assert said.startswith(f"“word3” (token 3) → keys {j}–{j + wide - 1}: ")
    assert share(said) == pytest.approx(exact[0][0, 3, j : j + wide].sum(), rel=COARSE_ERROR + 0.05)


def test_the_figures_beside_the_matrix_are_those_of_its_rows_and_keys(home):
    """Beside a row stand its entropy as a share, and its largest weight; above a key what it receives; a click chooses
    it.
    """
    chart, exact = home
    p, row_p = exact[0][0].astype(float), exact[0][0, 7, :8].astype(float)
    box = chart.tab.locator("#map .matrix").bounding_box()
    said = {}
    for name, place in {"query": (box["x"] + 4, chart.at(7, 3)[1]), "key": (chart.at(7, 3)[0], box["y"] + 4)}.items():
        chart.tab.mouse.move(*place)
        chart.view.settled()
        said[name] = chart.view.text("#map-pointer")
        chart.tab.mouse.click(*place)
    assert chart.view.state("query", "key") == (7, 3) and said["query"].startswith("“word7” (token 7): entropy ")
    assert share(said["query"]) == pytest.approx(-(row_p * np.log(row_p)).sum() / np.log(8), rel=0.02)
    assert share(said["query"].split("largest weight")[1]) == pytest.approx(row_p.max(), rel=0.06)
    assert share(said["key"].split("receives")[1]) == pytest.approx(p[:, 3].sum() / 12, rel=0.03)


def test_what_cannot_be_had_is_said_and_asked_for_again(home):
    """A tile that fails is told as a problem of the page; when it can be had again, it is drawn."""
    chart, _ = home
    chart.tab.evaluate(
        """() => {
            for (const cache of [tiles.codes, tiles.bitmaps]) {
                for (const name of [...cache.held.keys()]) cache.drop(name);
            }
            source.tile = async () => { throw new Error("no room for tiles"); };
            return choose({ head: 2 }).then(() => null);
        }"""
    )
    assert "no room for tiles" in chart.view.text("#problem")
    chart.tab.evaluate(
        """() => {
            delete source.tile;
            for (const found of tiles.failed.values()) found.at = -1e9;
            return choose({ head: 1 }).then(() => null);
        }"""
    )
    assert chart.tab.is_hidden("#problem")
    assert chart.pixel(5, 5)[3] == 255


def test_words_say_the_mean_of_the_other_rows_and_what_a_key_moves(opened):
    """Next to the weight of the pinned cell, and of the one under the pointer: the mean of the rows that may attend to
    the key, and p · ‖v‖ as a share of its row's sum; of a masked cell nothing.
    """
    q, k, v = normal(3, 2, 12, 8)
    view = opened(of_arrays(q, k, v, mask=rg.causal()), "#head=1&query=9&key=4")
    chart = Map(view)
    p = rg.attention_weights(q, k, mask=rg.causal())[1]
    moved = p * np.linalg.norm(v[1], axis=-1)
    for said, (i, j) in ((view.text("#map-pinned"), (9, 4)), (chart.hover(7, 2), (7, 2))):
        others, moves = (share(said.split(words)[1]) for words in ("(other rows", "), "))
        wanted = np.delete(p[j:, j], i - j).mean(), moved[i, j] / moved[i].sum()
        assert (others, moves) == pytest.approx(wanted, rel=0.06)
    masked = chart.hover(3, 8)
    view.choose(query=11, key=11)  # no other row may attend to the last key
    assert "other rows" not in masked + view.text("#map-pinned") and "of the output" not in masked


@pytest.fixture(scope="module")
def long(kept_open):
    """A longer page, whose whole is seen through pooled cells, with faults planted into given weights."""
    run, exact = example(n=700, layers=1, heads=2, mask=rg.causal())
    wrong = {(0, 10, 600): 0.01, (0, 40, 20): np.nan, (0, 50, 30): 1.5, (0, 60, 10): 0}
    return Map(kept_open(spoiled(run, exact[0], wrong))), exact[0]


def test_far_out_a_cell_is_the_pool_of_its_weights(long):
    """A pooled cell says the mean over its rows of the sum over its keys, or the largest weight, and how large it
    is.
    """
    chart, p = long
    chart.view.choose(**BEGIN | {"head": 1})
    size = int(re.search(r"each cell is (\d+) ", chart.view.text("#map-level"))[1])
    assert size == 2 ** np.ceil(np.log2(700 / chart.tab.evaluate("map.plot.width * map.plot.dpr")))
    i, j = 512 // size * size, 128 // size * size
    block = p[1, i : i + size, j : j + size]
    for pool, expected in {"share": block.sum(1).mean(), "largest": block.max()}.items():
        chart.view.choose(pool=pool)
        said = chart.hover(i + size / 2 - 0.5, j + size / 2 - 0.5)
        assert said.startswith(f"rows {i}–{i + size - 1} → keys {j}–{j + size - 1}: ")
        assert share(said) == pytest.approx(expected, rel=COARSE_ERROR + 0.05)
    assert "largest weight in the cell; exact" in chart.view.text("#map-level")


def test_what_is_wrong_is_seen_from_afar_and_how_to_pass(long):
    """Forbidden weight, NaN, out of range, zero and masked each look different; from afar each is told, and led to."""
    chart, _ = long
    chart.view.choose(**BEGIN)
    alarm = chart.view.text("#map-alarm")
    for told in ("Weight where the mask forbids it: 1 cell", "Not a number: 1 cell", "Out of range: 1 cell"):
        assert told in alarm
    leak = tint(chart.view, "--leak")
    marked = chart.tab.evaluate(
        """(leak) => {
            const canvas = document.querySelector("#map .matrix");
            const copy = new OffscreenCanvas(canvas.width, canvas.height).getContext("2d");
            copy.drawImage(canvas, 0, 0);
            const { data } = copy.getImageData(0, 0, canvas.width, canvas.height);
            const pixels = Array.from({ length: data.length / 4 }, (_, at) => 4 * at);
            return pixels.filter((at) => leak.every((part, place) => Math.abs(part - data[at + place]) < 6)).length;
        }""",
        leak,
    )
    assert marked >= 40  # one weight of 490,000, and yet it cannot be overlooked
    chart.view.click("#map-alarm span:first-child button")
    assert chart.view.state("query", "key") == (10, 600)
    assert "where the mask forbids it" in chart.view.text("#map-pinned")
    looks = [chart.pixel(10, 600)]
    assert looks[0][:3] == leak and chart.seen()["kx"] >= 9
    for i, j, what in [(40, 20, "not a number"), (50, 30, "out of range"), (60, 10, "exactly 0"), (60, 90, "masked")]:
        chart.view.choose(query=i, key=j, view={"row": i - 5, "column": j - 5, "span": 16})
        assert f": {what}, exact" in chart.view.text("#map-pinned")
        assert chart.pixel(i, j) not in looks
        looks.append(chart.pixel(i, j))
    chart.view.choose(head=1, view=None)
    assert chart.tab.is_hidden("#map-alarm")


# The page on a touch screen: everything that a mouse chooses with Shift and Alt is chosen by taps.

PHONE = {"viewport": {"width": 390, "height": 800}, "has_touch": True, "is_mobile": True, "device_scale_factor": 2}


def test_taps_on_words_choose_the_row_the_key_or_further_rows(opened):
    """With “choose key” a tap chooses the key of the row, with “add rows” one row more, or less; the hint
    speaks of taps. Every control of these parts is at least 24 pixels high, and nothing is cut off.
    """
    view = opened(example(n=12, mask=rg.causal())[0], "#call=0&head=0&query=3", **PHONE)
    assert "Tap a token" in view.text("#reader-readout")
    for selector, chosen in (
        ("#words-8", (8, [], None)),
        ("#reader-key", (8, [], None)),
        ("#words-2", (8, [], 2)),
        ("#reader-add", (8, [], 2)),
        ("#words-7", (8, [7], 2)),
        ("#words-9", (8, [7, 9], 2)),
        ("#words-7", (8, [9], 2)),
    ):
        view.tab.locator(selector).tap()
        view.settled()
        assert view.state("query", "pins", "key") == chosen, selector
    view.choose(second={"call": 1, "head": 0})
    view.reach("lines")
    selector = "#lines .line-token, #compare-second, #map-head, #reader-key, #reader-add"
    heights = view.each(selector, "node.checkVisibility() ? node.getBoundingClientRect().height : Infinity")
    assert np.isfinite(heights).sum() > 24 and min(heights) >= 24
    assert view.cut_off() == []
