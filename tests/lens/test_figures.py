"""Figures of rows and heads: what each means; computed from q and k, or from weights that were given."""

import dataclasses

import numpy as np
import pytest

import regard as rg
from regard.engines import choice
from regard.lens import Call
from regard.lens.runs import figures, tiles
from regard.lens.runs.codes import FINE_ERROR
from regard.lens.runs.detectors import ROWS
from tests.support.engines import normal
from tests.support.lanes import by_name


def defined(p, allowed, scores, special, start):
    """Every figure of the rows by its definition."""
    away = np.arange(p.shape[2]) - start - np.arange(p.shape[1])[:, None]
    entropy, count = -(p * np.log(np.where(p > 0, p, 1))).sum(-1), allowed.sum(-1)
    return {
        "entropy": entropy,
        "spread": np.where(count > 1, entropy / np.log(np.maximum(count, 2)), 0),
        "maximum": p.max(-1),
        "strongest": np.where(p.any(-1), p.argmax(-1), -1),
        "special": p[..., special].sum(-1),
        "itself": (p * (away == 0)).sum(-1),
        "previous": (p * (away == -1)).sum(-1),
        "first": p[..., 0],
        "distant": (p * (abs(away) > 1) * ~special).sum(-1),
        "distance": np.sqrt((p * away**2).sum(-1) / np.where(p.any(-1), p.sum(-1), 1)),
        "low": np.where(allowed, scores, np.inf).min(-1),
        "high": np.where(allowed, scores, -np.inf).max(-1),
        "attended": count,
        "wrong": 0 * count,
        "forbidden": (p * ~allowed).sum(-1),
    }


RULES = {
    "all": {},
    "causal": {"mask": rg.causal()},
    "later rows only": {"mask": (rg.query >= 4) & (rg.key != 2)},
    "window, sinks": {"mask": rg.window(3), "sinks": np.array([0.5, -1.0, 2.0])},
    "softcap, chunk": {"mask": rg.causal(), "score": rg.softcap(2.0), "query_start": 1},
}


@pytest.mark.spread
@by_name("rules", RULES)
@pytest.mark.parametrize("how", ["compiled", "small", "weights", "weights in blocks", "weights by the row"])
def test_figures_equal_their_definitions(rules, how, monkeypatch):
    """Every figure of every row equals its definition, whoever computes it; from weights alone too, without what only
    scores tell.
    """
    monkeypatch.setattr(choice, "ONE_CALL", 0 if how == "compiled" else 1 << 18)
    monkeypatch.setattr(figures, "CELLS", 4)
    monkeypatch.setattr(figures, "BLOCK", {"weights by the row": 1, "weights in blocks": 25}.get(how, 1 << 20))
    rng = np.random.default_rng(1)
    q, k, special = 2 * rng.standard_normal((3, 10, 8)), 2 * rng.standard_normal((3, 12, 8)), np.arange(12) % 11 == 0
    p = rg.attention_weights(q, k, **rules)
    (call,) = rg.look(q, k=k, **rules).calls
    if weights := how.startswith("weights"):
        found = figures.of_weights(p, special, mask=call.mask, start=call.start)
    else:
        kept = {name: getattr(call, name) for name in ("mask", "start", "score", "scale", "sinks")}
        found = figures.measured(q, k, special, **kept)
    expected = defined(p, call.allowed(), call.scores(), special, call.start)
    assert set(found["rows"]) == set(ROWS) - {"moved", "moved_special"} - (set() if weights else {"forbidden"})
    for name, values in found["rows"].items():
        exact = np.nan if weights and name in ("low", "high") else expected[name]
        np.testing.assert_allclose(values, np.broadcast_to(exact, values.shape), rtol=1e-5, atol=1e-5, err_msg=name)
    np.testing.assert_allclose(found["received"], p.sum(1), rtol=1e-5)
    with np.errstate(divide="ignore"):
        lse = np.log(p.sum(-1)) if weights else rg.attention_with_lse(q, k, k, **rules)[1]
    np.testing.assert_allclose(found["lse"], lse, rtol=1e-6, atol=1e-5)
    cut, by_key = np.arange(4) * 10 // 4, p.reshape(3, 10, 4, 3)
    share = np.add.reduceat(by_key.sum(3), cut, 1) / np.diff(cut, append=10)[:, None]
    np.testing.assert_allclose(found["overview"].share, share, rtol=1e-5, atol=1e-7)
    largest = np.maximum.reduceat(by_key.max(3), cut, 1)
    np.testing.assert_allclose(found["overview"].largest, largest, rtol=1e-5, atol=1e-7)


def test_what_is_wrong_with_given_weights_shows():
    """Weight behind the mask, weights that are none, and rows that do not sum to 1 stand in the figures, and in those
    of their rows only.
    """
    p = np.tri(6) / np.arange(1, 7)[:, None]
    p[2, 5], p[3, 0], p[4, 1], p[5, :] = 0.5, np.nan, -0.25, 0.5
    found = figures.of_weights(p[None], np.zeros(6, bool), mask=rg.causal())
    rows, bad = found["rows"], [0, 0, 0, 1, 1, 0]
    assert (rows["wrong"][0].tolist(), rows["strongest"][0].tolist()) == (bad, [0, 0, 5, -1, 0, 0])
    assert np.isnan(rows["entropy"][0]).tolist() == bad and rows["forbidden"][0, :3].tolist() == [0, 0, 0.5]
    np.testing.assert_allclose(found["lse"][0, [0, 1, 2, 5]], np.log([1, 1, 1.5, 3]), atol=1e-6)
    call = Call("a", 0, "rows", "keys", given=p[None], mask=rg.causal(), **found)
    assert np.isfinite(call.figures["forbidden"]).all()


def test_means_leave_out_rows_that_see_nothing():
    """A head's figure is the mean over the rows that may attend; a NaN in one of them shows, and no such row at all is
    NaN. A call without rows has no means.
    """
    q, k = normal(2, 2, 6, 4)
    q[1, 4, 0] = np.nan
    found, none = (
        figures.measured(q, k, np.zeros(6, bool), mask=mask) for mask in ((rg.query >= 2) & (rg.key < 5), rg.key < 0)
    )
    made = Call("a", 0, "rows", "keys", found["lse"], q, k)
    expected = [found["rows"]["entropy"][0, 2:].mean(), np.nan]
    np.testing.assert_allclose(dataclasses.replace(made, **found).figures["entropy"], expected, rtol=1e-6)
    assert found["rows"]["wrong"].sum(1).tolist() == [0, 5]
    assert np.isnan(dataclasses.replace(made, **none).figures["maximum"]).all() and made.figures == {}


@pytest.mark.spread
@pytest.mark.parametrize(("size", "score"), [(1e3, None), (1e5, None), (1e5, rg.score + 1e5)])
@pytest.mark.parametrize("small", [0, 1 << 18], ids=["compiled", "small"])
def test_weights_are_right_however_large_the_scores(size, score, small, monkeypatch):
    """A part that all scores share changes no weight: float32 numbers with scores of 100,000 give weights within the
    codes' error.
    """
    monkeypatch.setattr(choice, "ONE_CALL", small)
    q, k = normal(2, 1, 64, 16)
    if score is None:
        q[..., 0] = k[..., 0] = np.sqrt(4 * size)
    p = rg.attention_weights(q.astype(float), k.astype(float), scale=0.25)
    rules = {"score": score, "scale": 0.25}
    found = figures.measured(q, k, np.zeros(64, bool), **rules)
    call = Call("a", 0, "rows", "keys", q=q, k=k, **rules, **found)
    assert np.abs(found["lse"]).max() > 0.9 * size
    for values, exact in (
        (call.weights(), p),
        (tiles.tile(call, 0, 0, 0, 0).share, p[0]),
        (tiles.tile(call, 0, 3, 0, 0).share.sum(1), np.ones(8)),
        (found["rows"]["maximum"], p.max(-1)),
        (found["received"], p.sum(1)),
    ):
        np.testing.assert_allclose(values, exact, rtol=FINE_ERROR)
