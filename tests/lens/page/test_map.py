"""The map of a head in a real browser: its cells against the exact weights, how it moves, and what is said about it."""

import dataclasses

import numpy as np
import pytest

import regard as rg
from regard.lens import Axis, Run
from regard.lens.drawing.ramp import ramp
from regard.lens.look import of_arrays
from regard.lens.runs.axis import Segment
from regard.lens.runs.codes import COARSE_ERROR, FINE_ERROR
from regard.lens.runs.labels import visible
from regard.lens.runs.run import Step
from regard.lens.viewer import page
from tests.support.browser import HOSTILE, example
from tests.support.page_map import BEGIN, DIGITS, Map, share


@pytest.fixture(scope="module")
def shown(kept_open):
    """One page for many tests: a causal run of 12 tokens, and its exact weights."""
    run, exact = example(n=12, mask=rg.causal())
    return Map(kept_open(page(run))), exact


@pytest.fixture
def home(shown):
    """The same, as it was when it was opened."""
    shown[0].tab.evaluate("unmeasure(); measuring.on = false; document.activeElement.blur()")
    shown[0].view.choose(**BEGIN)
    return shown


def place(p, scale="log", row=None):
    """Where a weight stands on the ramp, 0 to 255, by the formula of each scale."""
    with np.errstate(divide="ignore"):
        x = {
            "log": 1 + np.log10(p) / 6,
            "linear": p,
            "lift": 0.5 + np.log2(p * row[0]) / 12 if row else None,
            "row": p / row[1] if row else None,
            "others": 0.5 + np.log2(p / row[2]) / 12 if row else None,
        }[scale]
    return round(255 * min(1, max(0, x)))


@pytest.mark.one_in(2)
@pytest.mark.parametrize("scale", ["log", "linear", "lift", "row", "others"])
def test_every_cell_has_the_colour_of_its_weight(home, scale):
    """The colour of a cell is the ramp's at the place of the exact weight, to within the step of its code; masked cells
    have none.
    """
    chart, exact = home
    chart.view.choose(head=1, query=11, scale=scale)
    colours = ramp("diverging-light" if scale in ("lift", "others") else "light").astype(int)
    p = exact[0][1]
    for i, j in [(3, 1), (5, 5), (7, 2), (10, 0), (11, 10)]:
        others = np.delete(p[j:, j], i - j).mean()  # the other rows that may attend to the key
        row = (i + 1, p[i].max(), others)
        lowest, highest = (place(p[i, j] * (1 + way * COARSE_ERROR), scale, row) for way in (-1, 1))
        steps = colours[max(0, lowest - 1) : highest + 2]
        assert np.abs(steps - chart.pixel(i, j)[:3]).sum(-1).min() <= 1, (i, j, p[i, j])
    ground = chart.pixel(2, 9)[:3]  # masked: hatching on plain ground, which is no colour of a large weight
    assert np.abs(colours[255] - ground).sum() > 200


def test_a_click_pins_a_cell_and_says_its_exact_weight(home):
    """Row and key of the cell are chosen, the words hold the exact weight, and the table around it that of its
    neighbours.
    """
    chart, exact = home
    chart.click(8, 3)
    assert chart.view.state("query", "key") == (8, 3)
    said = chart.view.text("#map-pinned")
    assert said.startswith("“word8” (token 8) → “word3” (token 3): ")
    assert said.endswith(", exact")
    assert share(said) == pytest.approx(exact[0][0, 8, 3], rel=DIGITS)
    assert said in chart.tab.get_attribute("#map .matrix", "aria-label")
    cells = chart.tab.eval_on_selector_all("#map-table td", "(cells) => cells.map((cell) => cell.textContent)")[1:]
    around = exact[0][0][6:11, 1:6]
    for text, p, (i, j) in zip(cells, around.ravel(), np.ndindex(5, 5), strict=True):
        if j + 1 > i + 6:
            assert text == "masked"
        else:
            assert (
                float(text.removesuffix(" %")) / 100 == pytest.approx(p, rel=DIGITS)
                if p >= 1e-6
                else text.startswith("below")
            )
    chart.click(5, 2, modifiers=["Shift"])
    assert chart.view.state("query", "pins") == (8, [5])
    chart.click(5, 2, modifiers=["Shift"])
    assert chart.view.state("pins") == []


def test_nothing_moves_while_the_pointer_does(home):
    """The words under the map change with the pointer and with what is pinned; what stands below them stays where it
    is.
    """
    chart, _ = home

    def below():
        return chart.tab.evaluate(
            "document.getElementById('minimap').offsetTop + document.getElementById('map').offsetHeight"
        )

    before = below()
    for i, j in [(3, 1), (11, 10), (2, 9)]:
        assert chart.hover(i, j).strip()
        assert below() == before
    chart.click(8, 3)
    assert below() == before


def test_the_map_is_driven_by_the_keyboard(home):
    """With the focus on the canvas, arrows move the pinned cell by one, Home and End go to the edges, and + − 0
    zoom.
    """
    chart, exact = home
    chart.tab.focus("#map .matrix")
    chart.view.press("ArrowRight", "ArrowDown", "ArrowDown", "ArrowRight")
    assert chart.view.state("query", "key") == (2, 1)
    assert share(chart.view.text("#map-pinned")) == pytest.approx(exact[0][0, 2, 1], rel=DIGITS)
    chart.view.press("End")
    assert chart.view.state("key") == 11
    assert "masked" in chart.view.text("#map-pinned")
    chart.view.press("Home", "PageDown")
    assert chart.view.state("query", "key") == (11, 0)
    chart.view.press("+")
    assert chart.seen()["span"] == pytest.approx(6, rel=0.01)
    at = chart.seen()
    assert at["row"] + chart.tab.evaluate("map.plot.height") / at["ky"] >= 12 - 1e-6  # the pinned row is still seen
    chart.view.press("-", "0")
    assert chart.view.state("view") is None
    chart.view.press("Enter")
    assert chart.view.state("pins") == []  # the pinned row is no further pin of itself


def test_a_block_is_summed_by_mouse_and_by_keyboard(home):
    """The weight of a block is the sum of its exact weights, and each row's share of it the mean of the row sums."""
    chart, exact = home
    chart.drag((4, 1), (9, 3), shift=True)
    total = exact[0][0][4:10, 1:4].sum()

    def told():
        said = chart.view.text("#map-block")
        where, rest = said.split(": weight ")
        weight, mean = rest.split(" in all, ")
        return where, float(weight), float(mean.split(" %")[0]) / 100

    where, weight, mean = told()
    assert where == "rows 4–9 × keys 1–3"
    assert weight == pytest.approx(total, rel=1e-3)
    assert mean == pytest.approx(total / 6, rel=DIGITS)
    assert chart.view.state("view") is None  # the map did not move
    chart.tab.focus("#map .matrix")
    chart.view.press("Escape")
    assert chart.view.text("#map-block") == ""
    chart.view.choose(query=6, key=2)
    chart.view.press("Shift+ArrowDown", "Shift+ArrowRight", "Shift+ArrowRight")
    where, weight, _ = told()
    assert where == "rows 6–7 × keys 2–4"
    assert weight == pytest.approx(exact[0][0][6:8, 2:5].sum(), rel=1e-3)
    assert chart.view.state("query", "key") == (6, 2)
    chart.view.click("#measure")
    assert chart.tab.get_attribute("#measure", "aria-pressed") == "true"
    chart.drag((0, 0), (11, 11))
    assert told()[1] == pytest.approx(12, rel=1e-3)


def test_the_wheel_zooms_where_the_pointer_is_and_leaves_the_page_to_be_scrolled(home):
    """With Ctrl, or with the focus, the cell under the pointer stays under it; otherwise the page scrolls and the map
    stays.
    """
    chart, _ = home
    x, y = chart.at(8, 8)
    chart.tab.mouse.move(x, y)
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
    chart.view.choose(view=None)
    chart.tab.focus("#map .matrix")
    chart.tab.mouse.wheel(0, -240)
    chart.view.settled()
    assert chart.seen()["span"] == pytest.approx(6, rel=0.01)
    chart.view.choose(view=None)
    chart.tab.mouse.dblclick(x, y)
    chart.view.settled()
    assert chart.seen()["span"] == pytest.approx(6, rel=0.01)


def test_dragging_moves_the_map_with_the_pointer_and_the_address_keeps_the_view(home, opened):
    """What was under the pointer stays under it, to the edges of the matrix; an address with a view opens at just that
    view.
    """
    chart, exact = home
    chart.view.choose(view={"row": 4, "column": 3, "span": 5})
    before = chart.seen()
    chart.drag((6, 5), (5, 4))
    after = chart.seen()
    assert (after["row"] - before["row"], after["column"] - before["column"]) == pytest.approx((1, 1), abs=0.02)
    chart.drag((8, 7), (6, 5))
    chart.drag((8, 7), (6, 5))
    assert chart.seen()["column"] == pytest.approx(7, abs=1e-6)  # 12 keys, 5 across: the last one is at the edge
    chart.view.choose(view={"row": 6.25, "column": 2.5, "span": 5})
    again = Map(opened(page(example(n=12, mask=rg.causal())[0]), chart.tab.evaluate("address()")))
    assert {name: again.seen()[name] for name in ("row", "column", "span")} == {"row": 6.25, "column": 2.5, "span": 5}
    assert share(again.hover(8, 4).split(" · ")[0]) == pytest.approx(exact[0][0, 8, 4], rel=DIGITS)


def test_the_small_map_moves_the_view(home):
    """A press on the small map puts the middle of the view there; its words say which rows and keys are shown."""
    chart, _ = home
    chart.view.choose(view={"row": 0, "column": 0, "span": 4})
    chart.view.click("#minimap", position={"x": 60, "y": 90})
    at = chart.seen()
    rows = chart.tab.evaluate("map.plot.height") / at["ky"]
    assert (at["column"] + at["span"] / 2, at["row"] + rows / 2) == pytest.approx((6, 9), abs=0.15)
    assert f"rows {int(at['row'])} to" in chart.tab.get_attribute("#minimap", "aria-label")


def test_special_tokens_can_be_left_out_and_the_rest_is_renormalised_and_labelled(home):
    """Without special tokens a weight has the colour of its share of the others, and the level says these are not the
    model's.
    """
    chart, exact = home
    chart.view.choose(hideSpecial=True, query=0)
    p = exact[0][0]
    for i, j in [(5, 3), (9, 4)]:
        part = p[i, j] / (1 - p[i, 0])
        lowest, highest = (place(part * (1 + way * COARSE_ERROR)) for way in (-1, 1))
        steps = ramp("light").astype(int)[max(0, lowest - 2) : highest + 3]
        assert np.abs(steps - chart.pixel(i, j)[:3]).sum(-1).min() <= 1
    assert chart.pixel(5, 0) == chart.pixel(8, 0)
    assert "not the model’s own numbers" in chart.view.text("#map-level")


def test_without_special_tokens_the_map_its_numbers_and_the_reader_tell_one_share(opened):
    """p / Σ p of the ordinary keys, also where sinks take a part: in the cells, under the pointer, and in the
    reader.
    """
    draw, sinks = np.random.default_rng(0).standard_normal, np.array([3.0], np.float32)
    q, k = draw((2, 1, 6, 8), dtype=np.float32)
    run = of_arrays(q, k, sinks=sinks, tokens=["[CLS]", *"abcde"], special=[True, *[False] * 5])
    chart = Map(opened(page(run)))
    chart.tab.evaluate(
        """() => {
            window.texts = [];
            const fill = CanvasRenderingContext2D.prototype.fillText;
            CanvasRenderingContext2D.prototype.fillText = function (text, ...place) {
                if (this.canvas.closest?.("#map-plot .matrix")) texts.push(String(text));
                fill.call(this, text, ...place);
            };
        }"""
    )
    chart.view.choose(hideSpecial=True, query=2)
    p = rg.attention_weights(q, k, sinks=sinks)[0]
    part = p[:, 1:] / p[:, 1:].sum(-1, keepdims=True)
    assert p[2].sum() < 0.6  # the sinks take much
    numbers = [text for text in chart.tab.evaluate("texts") if text.endswith("%")][-part.size :]
    np.testing.assert_allclose([share(text) for text in numbers], part.ravel(), rtol=0.055)  # two figures
    told = chart.hover(2, 3)
    assert f"({100 * part[2, 2]:.3g} % without special tokens)" in told
    assert chart.tab.evaluate("reading().then((line) => line.p[3])") == pytest.approx(part[2, 2], rel=2.1 * FINE_ERROR)
    assert "left out" in chart.hover(2, 0)


def test_where_no_token_is_special_none_is_left_out(opened):
    """An address that asks to leave special tokens out changes no number of a call without any, and nothing is said of
    it.
    """
    draw, sinks = np.random.default_rng(0).standard_normal, np.array([3.0], np.float32)
    q, k = draw((2, 1, 6, 8), dtype=np.float32)
    view = opened(page(of_arrays(q, k, sinks=sinks)), "#hide=special&query=2")
    p = rg.attention_weights(q, k, sinks=sinks)[0]
    assert view.tab.evaluate("reading().then((line) => line.p[3])") == pytest.approx(p[2, 3], rel=FINE_ERROR)
    assert "left out" not in view.text("#sentence") + view.text("#map-level")
    assert "The sinks (additional logits in the softmax) take" in view.text("#sentence")


def test_a_matrix_of_other_proportions_is_fitted(kept_open):
    """With many more keys than rows a cell is some keys of one row; it holds the pool of just these."""
    run, exact = example(n=7, layers=1, heads=1, keys=1300)
    chart = Map(kept_open(page(run)))
    level = chart.view.text("#map-level")
    assert level.startswith("each cell is 1 × ")
    wide = int(level.split(" × ")[1].split(" ")[0])
    assert wide > 1
    j = 400 // wide * wide
    said = chart.hover(3, j + wide / 2 - 0.5)
    assert said.startswith(f"“word3” (token 3) → keys {j}–{j + wide - 1}: ")
    assert share(said.split(" · ")[0]) == pytest.approx(exact[0][0, 3, j : j + wide].sum(), rel=COARSE_ERROR + 0.05)
    chart.view.click("#cells-square")
    assert chart.view.state("cells") == "square"
    assert chart.seen()["kx"] == chart.seen()["ky"]


def test_nothing_moves_and_nothing_is_empty_around_the_small_map(opened):
    """Where no cell is pointed at, its line says how the map is driven; pointing, pinning and measuring move nothing
    below.
    """
    chart = Map(opened(page(example(n=12)[0]), viewport={"width": 1440, "height": 900}))

    def place():
        return chart.tab.evaluate(
            """() => {
                const edge = (name, side) => document.querySelector(name).getBoundingClientRect()[side];
                const from = edge("#map-plot", "bottom");
                const ends = [edge("#minimap", "top"), edge("#minimap", "bottom"), edge("#map", "bottom")];
                return ends.map((end) => end - from);
            }"""
        )

    before = place()
    assert "Drag to move" in chart.view.text("#map-pointer")
    assert before[2] - before[1] < 24
    assert "%" in chart.hover(8, 1) and place() == before
    chart.click(8, 1)
    chart.drag((4, 4), (7, 7), shift=True)
    assert "weight" in chart.view.text("#map-block") and place() == before


def test_a_generated_run_shows_the_rows_that_were_there(kept_open):
    """At a step, rows of tokens that were not yet written are not drawn, and what they hold is not said."""
    run, _ = example(n=10, layers=1, heads=1, mask=rg.causal())
    run = dataclasses.replace(run, steps=tuple(Step(i, ((f"word{i}", 0.7),)) for i in range(6, 10)))
    chart = Map(kept_open(page(run)))
    shown = chart.pixel(8, 1)
    chart.view.choose(step=0)
    assert chart.pixel(8, 1) != shown
    assert chart.pixel(8, 1)[3] == 0
    assert "%" not in chart.hover(8, 1)
    assert chart.hover(5, 1).strip() != ""


def test_a_picture_shows_what_a_patch_looks_at(kept_open):
    """Where keys are patches, the picture stands beside the map, and its words name the patch that the row looks at
    most.
    """
    tokens = ("[CLS]", *(f"{i // 4},{i % 4}" for i in range(12)))
    run, exact = example(n=13, layers=1, heads=1, tokens=tokens)
    axis = Axis("text", tokens, (True, *(False,) * 12), grid=(3, 4))
    chart = Map(kept_open(page(Run("vision", "", {"text": axis}, run.calls))))
    chart.hover(5, 3)
    best = exact[0][0, 5, 1:].argmax()
    said = chart.view.text("#map-image-words")
    assert f"at row {best // 4}, column {best % 4} of the image" in said
    assert float(said.split("the largest, ")[1].split(" %")[0]) / 100 == pytest.approx(
        exact[0][0, 5, 1 + best], rel=0.06
    )
    assert chart.tab.get_attribute("#map-image", "aria-label") == said


def test_nothing_is_cut_off_and_hostile_tokens_are_only_words(kept_open):
    """At every width the map fits its place; tokens of any kind are drawn as text and harm nothing."""
    segments = (Segment(0, 3, "</script>"), Segment(3, 9, "\u202etxet"))
    run, _ = example(len(HOSTILE), layers=1, heads=1, tokens=HOSTILE)
    axis = dataclasses.replace(run.axes["text"], segments=segments)
    view = kept_open(page(dataclasses.replace(run, axes={"text": axis})), "#query=3&key=5")
    for width in (390, 1024, 1280, 1900):
        view.tab.set_viewport_size({"width": width, "height": 850})
        view.settled()
        assert [
            node for node in view.cut_off() if 'class="matrix"' in node or 'id="map' in node or 'id="minimap"' in node
        ] == []
        assert 150 < view.tab.evaluate("map.plot.width") < width
    assert view.tab.evaluate("window.harmed") is None
    assert f"“{visible(HOSTILE[5])}” (token 5)" in view.text("#map-pinned")


def test_the_figures_beside_the_matrix_are_those_of_its_rows_and_keys(home):
    """Beside a row stand its entropy as a share, and its weight on special tokens; above a key what it receives; a
    click chooses it.
    """
    chart, exact = home
    p = exact[0][0].astype(float)

    def beside(i, j, left, up):
        x, y = chart.at(i, j)
        box = chart.tab.query_selector("#map .matrix").bounding_box()
        chart.tab.mouse.move(box["x"] + left if left else x, box["y"] + up if up else y)
        chart.view.settled()
        return chart.view.text("#map-pointer")

    said = beside(7, 0, 4, None)
    row = p[7, :8]
    entropy = -(row * np.log(row)).sum() / np.log(8)
    assert said.startswith("“word7” (token 7): entropy ")
    assert float(said.split("entropy ")[1].split(" %")[0]) / 100 == pytest.approx(entropy, rel=0.02)
    assert f"largest weight {100 * row.max():#.2g}".rstrip(".") in said.replace(" %", "")
    chart.tab.mouse.down()
    chart.tab.mouse.up()
    assert chart.view.state("query") == 7
    said = beside(0, 3, None, 4)
    received = p[:, 3].sum() / 12
    assert float(said.split("receives ")[1].split(" %")[0]) / 100 == pytest.approx(received, rel=0.03)
    chart.tab.mouse.down()
    chart.tab.mouse.up()
    assert chart.view.state("key") == 3


def test_what_cannot_be_had_is_said_and_asked_for_again(home):
    """A tile that fails is told as a problem of the page; when it can be had again, it is drawn."""
    chart, _ = home
    chart.tab.evaluate(
        """() => {
            tiles.codes.clear(); tiles.bitmaps.clear();
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


@pytest.mark.sweep
def test_two_fingers_zoom_and_one_scrolls_the_page(opened):
    """On a phone a pinch zooms the map and not the page; one finger moves the page up and down, and the map from side
    to side.
    """
    run, _ = example(n=200, layers=1, heads=1)
    view = opened(page(run), viewport={"width": 390, "height": 700}, has_touch=True, is_mobile=True)
    chart = Map(view)
    x, y = chart.at(100, 100)
    fingers = view.context.new_cdp_session(view.tab)

    def touch(kind, *places):
        points = [{"x": at[0], "y": at[1], "id": name} for name, at in enumerate(places)]
        fingers.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})
        view.settled()

    touch("touchStart", (x - 20, y), (x + 20, y))
    for by in (30, 40):
        touch("touchMove", (x - by, y), (x + by, y))
    touch("touchEnd")
    assert chart.seen()["span"] == pytest.approx(100, rel=0.1)
    assert view.tab.evaluate("visualViewport.scale") == 1
    before, top = chart.seen(), view.tab.evaluate("scrollY")
    touch("touchStart", (x, y))
    for by in range(20, 120, 20):
        touch("touchMove", (x, y - by))
    touch("touchEnd")
    assert view.tab.evaluate("scrollY") > top + 40
    assert chart.seen() == before
    x, y = chart.at(100, 100)
    touch("touchStart", (x, y))
    for by in (10, 20, 40):
        touch("touchMove", (x - by, y))
    touch("touchEnd")
    assert (chart.seen()["column"] - before["column"]) * before["kx"] == pytest.approx(40, abs=8)


def test_words_say_the_mean_of_the_other_rows(home):
    """Next to the weight of the pinned cell, and of the one under the pointer; of a masked cell nothing."""
    chart, exact = home
    p = exact[0][1]
    chart.view.choose(head=1, query=9, key=4)
    for said, (i, j) in ((chart.view.text("#map-pinned"), (9, 4)), (chart.hover(7, 2), (7, 2))):
        others = np.delete(p[j:, j], i - j).mean()  # the other rows that may attend to the key
        assert share(said.split("(other rows")[1].split(")")[0]) == pytest.approx(others, rel=0.06)
    assert "other rows" not in chart.hover(3, 8)
    chart.view.choose(query=11, key=11)  # no other row may attend to the last key
    assert "other rows" not in chart.view.text("#map-pinned")


def test_words_say_what_a_key_moves(opened):
    """Beside the weight of the pinned cell, and of the one under the pointer: p · ‖v‖ as a share of its row's sum."""
    q, k, v = np.random.default_rng(0).standard_normal((3, 2, 12, 8), dtype=np.float32)
    run = of_arrays(q, k, v, mask=rg.causal())
    view = opened(page(run), "#head=1&query=9&key=4")
    chart = Map(view)
    moved = rg.attention_weights(q, k, mask=rg.causal())[1] * np.linalg.norm(v[1], axis=-1)
    shares = moved / moved.sum(-1, keepdims=True)
    for said, (i, j) in ((view.text("#map-pinned"), (9, 4)), (chart.hover(7, 2), (7, 2))):
        found = float(said.split(" % of what the row moves")[0].rsplit(", ", 1)[1]) / 100
        assert found == pytest.approx(shares[i, j], rel=0.06)
    assert "moves" not in chart.hover(3, 8)  # masked
    bare = opened(page(of_arrays(q, k, mask=rg.causal())), "#head=1&query=9&key=4")
    assert "moves" not in bare.text("#map-pinned")
