"""Means over heads in a real browser: the map, the row and the strongest keys against NumPy, in files and served."""

import dataclasses

import numpy as np
import pytest

import regard as rg
from regard.lens.runs.codes import FINE_ERROR, LEAK, NAN, decode
from regard.lens.runs.first_view import choose
from regard.lens.viewer import embed, page
from regard.lens.viewer.routes import HeadMean
from regard.lens.viewer.server import Server
from tests.lens.page.colors import distance, logarithmic
from tests.lens.test_server import INVALID
from tests.support.browser import Opened, example, share, spoiled
from tests.support.page_map import Map

ROUNDED_TWICE = 2.01 * FINE_ERROR  # the weights of the heads, and their mean


@pytest.fixture
def home(home):
    """The page, its run, and the means of its second call and of all heads."""
    view, run, exact = home
    view.choose(call=1, query=8)
    return view, run, {"mean": exact[1].mean(0, dtype=float), "all": np.concatenate(exact).mean(0, dtype=float)}


def row(view, *place):
    """The weights of a row, or of what else the page is asked for."""
    found = view.asks(*place)
    return decode(*(np.array(found[name], np.uint8) for name in ("coarse", "fine")))


@pytest.mark.parametrize("head", ["mean", "all"])
def test_the_numbers_of_a_mean_are_those_of_numpy(home, head):
    """Rows, columns, cells of every pooling and figures, from the weights that the file holds."""
    view, run, means = home
    p = means[head]
    for question, part in (("row", p[8]), ("column", p[:, 8])):
        np.testing.assert_allclose(row(view, question, 0, 1, head, 8), part, rtol=ROUNDED_TWICE, atol=1e-6)
        assert "rounded again" in view.asks(question, 0, 1, head, 8)["exact"]
    blocks = p.reshape(6, 2, 6, 2)
    for pool, cells in (("share", blocks.sum(3).mean(1)), ("largest", blocks.max((1, 3)))):
        found = view.asks("tile", 0, 1, head, pool, 1, 0, 0)
        np.testing.assert_allclose(decode(np.array(found["coarse"])), cells.ravel(), rtol=0.03, atol=1e-6)
    found = view.asks("tracks", 0, 1, head)
    for name, values in HeadMean(run.calls if head == "all" else run.calls[1:]).tracks().items():
        np.testing.assert_allclose(found[name], values, rtol=3e-4, atol=1e-5, err_msg=name)
    assert "lengths" not in found


def test_the_map_and_the_text_show_the_mean(home):
    """Chosen in the list of heads: the cells, the strongest keys and the sentence are those of the mean, and say so."""
    view, _, means = home
    p, name = means["mean"], "mean of the 3 heads of layer 1"
    view.select("#map-head", label=name)
    view.settled()
    assert view.state("head") == "mean" and "head=mean" in view.address()
    assert view.text("#sentence").startswith(name.capitalize())
    answer = "[Number(node.dataset.token), Number(node.querySelector('data').value)]"
    order, values = zip(*view.each("#strongest-list .entry[data-token]", answer)[:3])
    assert list(order) == np.argsort(-p[8])[:3].tolist()
    np.testing.assert_allclose(values, p[8, order], rtol=ROUNDED_TWICE)
    chart = Map(view)
    for cell in ((8, 3), (11, 5)):
        assert distance(chart.pixel(*cell), logarithmic(p[cell])) <= 1
    chart.click(8, 3)
    said = view.text("#map-pinned")
    assert share(said) == pytest.approx(p[8, 3], rel=0.006) and "neighborhood" not in said
    assert "the mean of 3 weights" in view.text("#map-level")
    assert name in view.tab.get_attribute("#map .matrix", "aria-label")


def test_what_a_mean_does_not_have_is_said(home):
    """No cell of the overview is marked, metrics are means of those of the heads, and there are no steps and moves. By
    keyboard, another layer shows its mean; the next head is the first, the previous one the last.
    """
    view, run, _ = home
    view.choose(head="mean")
    assert view.tab.locator("#grid [aria-selected=true]").count() == 0
    view.unfold("#figures")
    shown = view.text("#figures")
    assert f"{100 * run.calls[1].figures['first'].mean():.3g}" in shown.split("weight on the first key")[1]
    assert "entropy" not in shown
    assert {*view.each("#strongest-list .moves")} == {"—"}
    view.reach("walk")
    view.tab.wait_for_function("() => document.getElementById('walk-note').textContent.includes('choose a head')")
    for pressed, expected in (("[", (0, "mean")), (".", (0, 0)), (",", (0, 2))):
        view.press(pressed)
        assert view.state("call", "head") == expected


def test_invalid_weights_stay_visible_in_a_mean(opened):
    """A NaN, a weight out of range or a forbidden one in one head marks the cell of the mean."""
    run, exact = example(layers=1, mask=rg.causal())
    view = opened(spoiled(run, exact[0], INVALID), "#head=mean")
    codes = np.reshape(view.asks("tile", 0, 0, "mean", "share", 0, 0, 0)["coarse"], (8, 8))
    assert np.argwhere(codes == NAN).tolist() == [[3, 1], [4, 2]]
    assert np.argwhere(codes == LEAK).tolist() == [[2, 5]]
    assert view.tab.is_visible("#map-alarm")
    assert view.tab.locator("#map-head option", has_text="mean of all").count() == 0  # there is one call alone


def test_a_file_of_a_long_text_says_how_to_get_means(opened, monkeypatch):
    """It offers none of them, and says why and the command; an address that asks for one shows a head."""
    monkeypatch.setattr(embed, "WHOLE", 1)
    monkeypatch.setattr(embed, "MEANS", 1)
    run, _ = example(n=40)
    view = opened(run, "#call=0&head=mean")
    assert "regard look --serve" in view.text("#atlas-note") and view.state("head") == choose(run).head
    options = view.tab.locator("#map-head option", has_text="mean of")
    disabled = "nodes => nodes.map((node) => node.disabled && node.title.includes('--serve'))"
    assert options.evaluate_all(disabled) == [True] * 3
    view.choose(head="all")
    assert view.state("head") == choose(run).head


def test_calls_between_other_axes_have_means_of_their_own(opened):
    """The mean over layers is over the calls with the same rows and keys, and its name says which."""
    run, exact = example(n=6, heads=2)
    cross, _ = example(n=6, heads=4, keys=9)
    view = opened(page(dataclasses.replace(cross, calls=(*run.calls, *cross.calls)), start={}), "#call=1&head=all")
    assert view.text("#sentence").startswith("Mean of all 4 heads of text: ")
    p = np.concatenate(exact)[:, 2].mean(0)
    np.testing.assert_allclose(row(view, "row", 0, 1, "all", 2), p, rtol=ROUNDED_TWICE)


def test_a_served_page_gets_means_from_python(chromium):
    """Rounded once, and exact in its words."""
    run, exact = example(n=12, mask=rg.causal())
    p = np.concatenate(exact).mean(0)[8]
    with Server(run) as served:
        view = Opened(chromium, served.address, "#head=all&query=8")
        np.testing.assert_allclose(row(view, "row", 0, 0, "all", 8), p, rtol=FINE_ERROR * 1.01, atol=1e-6)
        assert view.text("#sentence").startswith("Mean of all 6 heads: ")
        view.tab.wait_for_function("() => $('map-level').textContent.endsWith('6 weights; exact')")
        view.context.close()
