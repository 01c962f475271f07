"""The atlas of heads in a real browser: its pictures, metrics, order and filter, and the table beside it."""

import dataclasses

import numpy as np
import pytest

import regard as rg
from regard.language.measures import edges
from regard.lens.drawing.ramp import ramp
from regard.lens.runs.codes import FINE_ERROR, decode, encode
from regard.lens.viewer import embed, page
from tests.support.browser import example, near, share

CELL = 46  # the largest cell of the atlas, in pixels


def test_every_head_of_the_atlas_opens(home):
    """A click on a cell chooses its head; the figures beneath are those of the run."""
    view, run, exact = home
    view.choose(query=11)
    for call in range(2):
        for head in range(3):
            view.click(f"#grid button[data-call='{call}'][data-head='{head}']")
            assert view.state("call", "head") == (call, head)
            codes = view.asks("row", 0, call, head, 11)
            near(
                dict(enumerate(decode(np.uint8(codes["coarse"]), np.uint8(codes["fine"])))),
                exact[call][head, 11],
                FINE_ERROR,
            )
            told = dict(
                zip(
                    *(
                        view.tab.eval_on_selector_all(
                            f"#figures {tag}", "nodes => nodes.map((node) => node.textContent)"
                        )
                        for tag in ("dt", "dd")
                    ),
                    strict=True,
                )
            )
            figures = {name: values[head] for name, values in run.calls[call].figures.items()}
            assert float(told["entropy"].split()[0]) == pytest.approx(figures["entropy"], abs=0.0051)
            for name, figure in (
                ("weight on special tokens", "special"),
                ("weight on the first key", "first"),
                ("largest weight", "maximum"),
                ("weight on the previous token", "previous"),
            ):
                assert share(told[name]) == pytest.approx(figures[figure], rel=0.006)
            assert told["key/value head"] == "0 · shared by 3"


def test_pictures_of_the_atlas_are_the_matrices(opened):
    """Every cell of a picture has the colour of the mean over its rows of the sum over its keys; masked ones let the
    ground through.
    """
    run, exact = example(n=60, layers=1, heads=2, mask=rg.causal())
    view = opened(page(run), "#scale=log")
    codes = view.asks("overview", 0, 0)
    side = codes["rows"]
    assert side == codes["columns"] == embed.THUMBNAIL
    cuts = edges(60, side)
    pooled = np.add.reduceat(np.add.reduceat(exact[0], cuts[:-1], 1), cuts[:-1], 2) / np.diff(cuts)[:, None]
    expected = encode(pooled, pooled > 0)[0]
    np.testing.assert_array_equal(np.reshape(codes["codes"], (2, side, side)), expected)
    x, y, size = view.tab.evaluate("(() => { const { x, y } = atlas.cells[1]; return [x, y, atlas.size - 1]; })()")
    assert size == CELL - 1  # a pixel for every cell but one: the colours are nearly those of the ramp
    for at in ((0, 0), (43, 0), (43, 43)):
        colour = view.pixel(
            "#atlas-canvas", x + round((at[1] + 0.5) * size / side - 0.5), y + round((at[0] + 0.5) * size / side - 0.5)
        )
        wanted = ramp("light")[round(255 * (1 + np.log10(decode(expected[1][at])) / 6))]
        assert np.abs(np.subtract(colour[:3], wanted.astype(int))).max() < 60, at
    assert view.pixel("#atlas-canvas", x + size - 4, y + 3)[:3] not in ramp("light").tolist()


def test_metrics_take_the_place_of_pictures(home):
    """Each cell has the colour of its figure on a fixed linear domain, and a name with the same number."""
    view, run, _ = home
    view.tab.select_option("#metric", "maximum")
    view.settled()
    for call in range(2):
        for head in range(3):
            figure = run.calls[call].figures["maximum"][head]
            x, y = view.tab.evaluate(f"(({{ x, y }}) => [x, y])(atlas.cells[{3 * call + head}])")
            assert (
                np.abs(
                    view.pixel("#atlas-canvas", x + 2, y + 2)[:3] - ramp("light")[round(255 * figure)].astype(int)
                ).max()
                <= 3
            )
            name = view.tab.get_attribute(f"#grid button[data-call='{call}'][data-head='{head}']", "aria-label")
            assert share(name) == pytest.approx(figure, rel=0.006)


def test_heads_are_sorted_by_the_metric(home):
    """The heads of a layer stand in falling order of the figure, layers in that of their mean."""
    view, run, _ = home
    figures = np.array([call.figures["itself"] for call in run.calls])
    view.choose(metric="itself", sort="heads")
    places = view.tab.evaluate("atlas.cells.map(({ call, head, x }) => [call, head, x])")
    for call in range(2):
        standing = [head for at, head, _ in sorted(places, key=lambda place: place[2]) if at == call]
        assert standing == np.argsort(-figures[call]).tolist()
    view.choose(sort="layers")
    tops = view.tab.evaluate("[0, 1].map((call) => atlas.cells.find((cell) => cell.call === call).y)")
    assert np.argsort(tops).tolist() == np.argsort(-figures.mean(1)).tolist()


def test_the_filter_is_stepped_over(home):
    """Heads outside the range are skipped by the keys and by the arrows in the grid, and the count is told."""
    view, run, _ = home
    figures = np.array([call.figures["previous"] for call in run.calls])
    low = float(np.sort(figures.ravel())[2]) * 0.9999
    view.choose(filter={"metric": "previous", "low": low, "high": 1})
    kept = [divmod(int(at), 3) for at in np.flatnonzero(figures.ravel() >= low)]
    assert len(kept) == 4
    assert "4 of 6 heads pass the filter" in view.text("#atlas-note")
    view.choose(call=kept[0][0], head=kept[0][1])
    walked = []
    for _ in kept:
        walked.append(view.state("call", "head"))
        view.press(".")
    assert walked == kept
    assert view.state("call", "head") == kept[0]
    view.press(",")
    assert view.state("call", "head") == kept[-1]
    view.tab.focus(f"#grid button[data-call='{kept[0][0]}'][data-head='{kept[0][1]}']")
    for _ in range(4):
        view.press("ArrowRight")
    focused = view.tab.evaluate(
        "[document.activeElement.dataset.call, document.activeElement.dataset.head].map(Number)"
    )
    assert tuple(focused) == [place for place in kept if place[0] == kept[0][0]][-1]


def test_not_sink_dominated_is_a_ready_made_filter(home):
    """It keeps the heads with at most half of their weight on special tokens or on the first key."""
    view, run, _ = home
    view.tab.select_option("#filter", "sink")
    view.settled()
    sink = np.maximum([call.figures["special"] for call in run.calls], [call.figures["first"] for call in run.calls])
    assert view.tab.evaluate("metrics.all().length") == (sink <= 0.5).sum()
    view.tab.focus("#filter-high")
    view.press("ArrowLeft")
    assert view.state("filter")["high"] == pytest.approx(0.49)
    view.tab.focus("#filter-low")
    view.press("End")  # the ends do not cross
    assert view.state("filter")["low"] == view.state("filter")["high"]
    view.tab.select_option("#filter", "")
    view.settled()
    assert view.state("filter") is None


@pytest.mark.one_in(2)
@pytest.mark.parametrize("alone", [True, False])
def test_figures_that_a_call_has_not_are_dashes(opened, alone):
    """Between two axes nothing counts from a token's own place: list, table, cells, order and filter go on without
    those figures.
    """
    crossed, _ = example(layers=1, keys=5)
    plain, _ = example(layers=1, seed=1)
    calls = crossed.calls if alone else plain.calls + crossed.calls
    view = opened(page(dataclasses.replace(crossed, calls=calls)), f"#call={len(calls) - 1}&head=1")
    gone = ("itself", "previous", "distant", "distance")
    titles = view.tab.evaluate("(gone) => gone.map((name) => METRICS[name].title)", gone)
    told = dict(
        line.split("\n")
        for line in view.tab.eval_on_selector_all("#figures div", "nodes => nodes.map((node) => node.innerText)")
    )
    assert [told[title] for title in titles] == ["—"] * 4 and told["largest weight"].endswith("%")
    view.click("#atlas-as-table")
    lines = view.tab.evaluate("headTable.text()").splitlines()
    heading = lines[0].split("\t")
    assert {name: lines[-1].split("\t")[heading.index(name)] for name in gone} == dict.fromkeys(gone, "")
    for name, title in zip(gone, titles, strict=True):
        view.tab.evaluate("(name) => headTable.sort(name)", name)
        shown = view.tab.eval_on_selector_all(
            "#atlas-table tr", "nodes => nodes.map((node) => [...node.children].map((cell) => cell.innerText))"
        )
        column = [line[shown[0].index(title)] for line in shown[1:]]
        assert column[-3:] == ["—"] * 3 and all(value != "—" for value in column[:-3])  # what is not there comes last
        for sort in ("heads", "layers"):
            view.choose(metric=name, sort=sort)
            assert f"{title} —" in view.tab.get_attribute(f"#grid button[data-call='{len(calls) - 1}']", "aria-label")
        view.choose(filter={"metric": name, "low": 0, "high": 1e6})
        assert f"{3 * len(calls) - 3} of {3 * len(calls)} heads pass the filter" in view.text("#atlas-note")
        view.press(".", "]")
        view.choose(filter=None)
    view.click("#atlas-as-table")
    assert not view.tab.is_visible("#problem")


def test_arrows_walk_the_grid_and_enter_chooses(home):
    """Focus moves through the cells without choosing; Enter chooses; one cell at a time can be reached by Tab."""
    view, *_ = home
    view.tab.focus("#grid button[tabindex='0']")
    view.press("ArrowRight", "ArrowDown")
    assert view.tab.evaluate("[document.activeElement.dataset.call, document.activeElement.dataset.head]") == ["1", "1"]
    assert view.state("call", "head") == (0, 0)
    assert view.tab.eval_on_selector_all("#grid button[tabindex='0']", "nodes => nodes.length") == 1
    view.press("Enter")
    assert view.state("call", "head") == (1, 1)


def test_the_table_has_all_numbers(home):
    """Every figure of every head stands in the table, it sorts by any column, and the copy has the same numbers in
    full.
    """
    view, run, _ = home
    view.click("#atlas-as-table")
    lines = view.tab.eval_on_selector_all(
        "#atlas-table tbody tr", "rows => rows.map((row) => [...row.children].map((cell) => cell.textContent))"
    )
    names = view.tab.evaluate("headTable.names()")
    assert [line[0] for line in lines] == [f"layer {call}, head {head}" for call in range(2) for head in range(3)]
    assert [share(line[1 + names.index("distant")]) for line in lines] == pytest.approx(
        np.concatenate([call.figures["distant"] for call in run.calls]).tolist(), rel=0.006
    )
    view.click(f"#atlas-table th:nth-child({2 + names.index('distant')}) button")
    values = view.tab.eval_on_selector_all(
        f"#atlas-table td:nth-child({2 + names.index('distant')})",
        "cells => cells.map((cell) => parseFloat(cell.textContent))",
    )
    assert values == sorted(values, reverse=True)
    copied = [line.split("\t") for line in view.tab.evaluate("headTable.text()").splitlines()]
    at = copied[0].index("distant")
    assert sorted(float(line[at]) for line in copied[1:]) == pytest.approx(
        sorted(np.concatenate([call.figures["distant"] for call in run.calls])), rel=1e-4
    )
    view.click("#atlas-table tbody tr:last-child button")
    assert view.tab.evaluate("metrics.value('distant', state.call, state.head)") == pytest.approx(
        min(float(line[at]) for line in copied[1:])
    )
    view.click("#atlas-as-table")
    assert view.tab.is_visible("#grid")
