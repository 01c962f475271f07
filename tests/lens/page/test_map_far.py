"""The map of a long run in a real browser: cells that stand for many, and pictures that are drawn once."""

import re

import numpy as np
import pytest

import regard as rg
from regard.lens.runs.codes import COARSE_ERROR
from tests.lens.page.colors import tint
from tests.support.browser import example, fault
from tests.support.page_map import BEGIN, Map, share


@pytest.fixture(scope="module")
def long(kept_open):
    """A longer page, whose whole is seen through pooled cells, with faults planted into given weights."""
    run, exact = example(n=700, layers=1, heads=2, mask=rg.causal())
    p = exact[0].copy()
    p[0, 10, 600], p[0, 40, 20], p[0, 50, 30], p[0, 60, 10] = 0.01, np.nan, 1.5, 0
    run = fault(run, given=p, q=None, k=None, v=None, out=None, x=None)
    return Map(kept_open(run)), p


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
        assert share(said.split(" · ")[0]) == pytest.approx(expected, rel=COARSE_ERROR + 0.05)
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


def test_panning_draws_from_pictures_that_are_there(long):
    """While the view moves within tiles that have arrived, nothing is asked for or decoded again."""
    chart, _ = long
    chart.view.choose(**BEGIN | {"head": 1, "view": {"row": 10, "column": 10, "span": 200}})
    found = chart.tab.evaluate(
        """async () => {
            const counts = { asked: 0, decoded: 0, frames: 0 };
            const { tile } = source, { paint } = Plot.prototype;
            const { transferToImageBitmap: image } = OffscreenCanvas.prototype;
            source.tile = function (...given) { counts.asked++; return tile.apply(this, given); };
            OffscreenCanvas.prototype.transferToImageBitmap = function () {
                counts.decoded++;
                return image.apply(this);
            };
            Plot.prototype.paint = function () {
                counts.frames++;
                return paint.call(this);
            };
            for (let step = 0; step < 30; step++) { map.plot.pan(-1, -1); await new Promise(requestAnimationFrame); }
            Object.assign(Plot.prototype, { paint });
            Object.assign(OffscreenCanvas.prototype, { transferToImageBitmap: image });
            delete source.tile;
            return counts;
        }"""
    )
    assert (found["asked"], found["decoded"]) == (0, 0)
    assert found["frames"] >= 25
