"""Means over heads: their weights, figures and tiles against NumPy, and what a mean does with invalid weights."""

import numpy as np
import pytest

import regard as rg
from regard.lens import Run
from regard.lens.runs.codes import FINE_ERROR, LEAK, MASKED, NAN, decode
from regard.lens.viewer import routes
from regard.lens.viewer.routes import mean_of
from tests.lens.client import unframed
from tests.lens.test_figures import defined
from tests.support.browser import example, spoiled

INVALID = {(0, 3, 1): np.nan, (1, 4, 2): -0.5, (2, 2, 5): 0.3}  # one in each of three heads, the last behind the mask


def means(run):
    """(the word in a request, its mean, the exact mean) of the second call and of all calls."""
    every = np.array([call.weights() for call in run.calls])
    yield "mean", mean_of(run, run.calls[1], "mean"), every[1].mean(0)
    yield "all", mean_of(run, run.calls[1], "all"), every.mean((0, 1))


def test_a_mean_is_the_mean_of_the_weights():
    """Of the heads of a call, and of all calls; any rows and keys of it; a pair that some head allows is allowed."""
    run, other = (example(n=40, layers=3, heads=5, mask=mask)[0] for mask in (rg.causal(), None))
    for _, found, exact in means(run):
        np.testing.assert_allclose(found.weights([3, 7], slice(1, 4), 0)[0], exact[[3, 7], 1:4], rtol=1e-12)
        np.testing.assert_array_equal(found.allowed(), [np.tri(40)])
    mixed = Run("toy", "", run.axes, (run.calls[0], other.calls[1]))
    assert mean_of(mixed, mixed.calls[0], "all").allowed().all()


def test_the_figures_of_a_mean_are_those_of_its_rows(monkeypatch):
    """Entropy, maximum and the others, as they follow from the exact mean; too many weights have no entropy."""
    run, _ = example(n=40, mask=rg.causal())
    monkeypatch.setattr(routes, "PAIRS", 700)  # several blocks of rows and of heads
    special, free = np.array(run.axes["text"].special), np.tri(40, dtype=bool)
    for _, found, p in means(run):
        figures = found.tracks()
        rows = defined(p[None], free[None], p[None], special, 0)
        expected = {name: rows[name][0] for name in ("entropy", "spread", "maximum", "special", "attended")}
        expected |= {"ordinary": p[:, ~special].sum(1), "received": p.sum(0), "readers": free.sum(0)}
        assert figures.keys() == expected.keys()
        for name, values in expected.items():
            assert figures[name].dtype == np.float32
            np.testing.assert_allclose(figures[name], values, rtol=2e-5, atol=2e-6, err_msg=name)
    monkeypatch.setattr(routes, "COUNTED", 1)
    figures = found.tracks()
    assert np.isnan(figures["entropy"]).all() and np.isnan(figures["maximum"]).all()
    np.testing.assert_allclose(figures["received"], p.sum(0), rtol=2e-5)


def test_invalid_weights_of_one_head_stay_visible():
    """The mean with a NaN or a weight out of range is NaN; one that a mask forbids in one head is so in the mean."""
    run, (exact,) = example(n=6, layers=1, mask=rg.causal())
    run = spoiled(run, exact, INVALID)
    coarse = unframed(routes.Responder([run]).answer("tile", "0", "0", "mean", "share", "0", "0", "0"))[1]["coarse"]
    assert np.argwhere(coarse == NAN).tolist() == [[3, 1], [4, 2]]
    assert coarse[2, 5] == LEAK and coarse[1, 5] == MASKED


def test_the_server_answers_for_means():
    """Tiles of every level, rows, columns and figures of a mean; the steps of a computation are those of one head."""
    run, _ = example(n=300, mask=rg.causal())
    responder = routes.Responder([run])
    for word, _, exact in means(run):
        cells = exact.reshape(150, 2, 150, 2)
        for request, right in {
            f"tile/0/1/{word}/share/0/1/0": exact[256:, :256],
            f"tile/0/1/{word}/share/1/0/0": cells.sum(3).mean(1),
            f"tile/0/1/{word}/largest/1/0/0": cells.max((1, 3)),
            f"row/0/1/{word}/7": exact[7],
            f"column/0/1/{word}/7": exact[:, 7],
        }.items():
            _, found = unframed(responder.answer(*request.split("/")))
            np.testing.assert_allclose(decode(**found), right, rtol=FINE_ERROR * 1.01, atol=1e-6)
        figures = unframed(responder.answer("tracks", "0", "1", word))[1]
        np.testing.assert_allclose(figures["received"], exact.sum(0), rtol=2e-5)
        with pytest.raises(rg.Refused, match="steps of a mean"):
            responder.answer("walk", "0", "1", word, "7")


def test_a_tile_of_many_heads_is_sampled(monkeypatch):
    """A tile of more weights than two seconds allow says which rows it is made of."""
    run, _ = example(n=300, mask=rg.causal())
    monkeypatch.setattr(routes, "MEAN_BUDGET", 6 * 300 * 300 // 2)
    header, found = unframed(routes.Responder([run]).answer("tile", "0", "0", "all", "share", "2", "0", "0"))
    assert header["exact"] == "sampled 1 row of 2"
    np.testing.assert_allclose(decode(**found).sum(1), 1, atol=0.02)
