"""Figures of rows and heads: what each means, by plain loops; computed from q and k, or from weights that were
given.
"""

import math
import tracemalloc

import numpy as np
import pytest

import regard as rg
from regard.language.problem import Problem
from regard.lens import Call
from regard.lens.runs import figures, tiles
from regard.lens.runs.codes import FINE_ERROR


def brute(p, allowed, scores, special, start) -> dict[str, list[list[float]]]:
    """Every figure of the rows of one head by its definition, in plain Python."""
    found = {name: [] for name in figures.ROWS}
    for i, (row, seen) in enumerate(zip(p.tolist(), allowed.tolist(), strict=True)):
        at, keys = start + i, range(len(row))
        some = {j: row[j] for j in keys if row[j] > 0}
        count, share = sum(seen), math.fsum(some.values())
        own = [scores[i, j] for j in keys if seen[j]]

        def on(members, some=some):
            return math.fsum(x for j, x in some.items() if members(j))

        entropy = -math.fsum(x * math.log(x) for x in some.values())
        for name, value in {
            "entropy": entropy,
            "spread": entropy / math.log(count) if count > 1 else 0,
            "maximum": max(row),
            "strongest": row.index(max(row)) if some else -1,
            "special": on(lambda j: special[j]),
            "itself": on(lambda j, at=at: j == at),
            "previous": on(lambda j, at=at: j == at - 1),
            "first": row[0],
            "distant": on(lambda j, at=at: abs(at - j) > 1 and not special[j]),
            "distance": math.sqrt(math.fsum(x * (at - j) ** 2 for j, x in some.items()) / (share or 1)),
            "low": min(own, default=math.inf),
            "high": max(own, default=-math.inf),
            "attended": count,
            "wrong": 0,
            "forbidden": on(lambda j, seen=seen: not seen[j]),
        }.items():
            found[name].append(value)
    return found


RULES = {
    "all": {},
    "causal": {"mask": rg.causal()},
    "later rows only": {"mask": (rg.query >= 4) & (rg.key != 2)},
    "window, sinks": {"mask": rg.window(3), "sinks": np.array([0.5, -1.0, 2.0])},
    "softcap, chunk": {"mask": rg.causal(), "score": rg.softcap(2.0), "query_start": 1},
}
rules = pytest.mark.parametrize("rules", RULES.values(), ids=RULES)


def case(rules, Q=10, K=12):
    """q, k, which keys are special, and the rules as a run keeps them."""
    rng = np.random.default_rng(1)
    q, k = 2 * rng.standard_normal((3, Q, 8)), 2 * rng.standard_normal((3, K, 8))
    problem = Problem.of(q, k, None, **rules)
    kept = {"mask": problem.mask, "score": problem.score, "scale": problem.scale, "start": int(problem.query_start[0])}
    special = np.arange(K) % 11 == 0
    return q, k, special, kept | {"sinks": problem.sinks}


@pytest.mark.spread
@rules
@pytest.mark.parametrize("small", [0, 1 << 18], ids=["compiled", "small"])
def test_figures_equal_their_definitions(rules, small, monkeypatch):
    """Every figure of every row equals a plain loop over its definition, whoever computes it."""
    monkeypatch.setattr(figures, "SMALL", small)
    q, k, special, kept = case(rules)
    p = rg.attention_weights(q, k, **rules)
    found = figures.measured(q, k, special, **kept, cells=4)
    call = Call("a", 0, "rows", "keys", found["lse"], q, k, **kept, rows=found["rows"])
    assert set(found["rows"]) == set(figures.ROWS) - {"forbidden", *figures.OF_VALUES}
    for h in range(len(q)):
        expected = brute(p[h], call.allowed(heads=h)[0], call.scores(heads=h)[0], special, kept["start"])
        for name, values in found["rows"].items():
            np.testing.assert_allclose(values[h], expected[name], rtol=2e-6, atol=2e-6, err_msg=name)
    np.testing.assert_allclose(found["received"], p.sum(1), rtol=1e-6)
    np.testing.assert_allclose(found["lse"], rg.attention_with_lse(q, k, k, **rules)[1], rtol=1e-6)
    np.testing.assert_allclose(
        found["overview"].share.sum(-1), [[row.sum(1).mean() for row in head] for head in cut(p, 4)], rtol=1e-6
    )
    np.testing.assert_allclose(found["overview"].largest.max((1, 2)), p.max((1, 2)), rtol=1e-6)


def cut(p, lines):
    """The rows of every head in lines of cells."""
    return [np.split(head, np.arange(1, lines) * len(head) // lines) for head in p]


@pytest.mark.spread
@rules
@pytest.mark.parametrize("block", [1, 25, 1 << 20])
def test_given_weights_have_the_same_figures(rules, block, monkeypatch):
    """From weights alone, in blocks of any size: the figures that q and k would have given, without what only scores
    tell.
    """
    monkeypatch.setattr(figures, "BLOCK", block)
    q, k, special, kept = case(rules)
    p = rg.attention_weights(q, k, **rules)
    wanted = figures.measured(q, k, special, **kept, cells=4)
    found = figures.of_weights(p, special, mask=kept["mask"], start=kept["start"], cells=4)
    for name in set(wanted["rows"]) - {"low", "high"}:
        np.testing.assert_allclose(found["rows"][name], wanted["rows"][name], rtol=1e-5, atol=1e-5, err_msg=name)
    assert np.isnan(found["rows"]["low"]).all()
    assert not found["rows"]["forbidden"].any()
    np.testing.assert_allclose(found["received"], wanted["received"], rtol=1e-5)
    for name in ("share", "largest"):
        np.testing.assert_allclose(
            getattr(found["overview"], name), getattr(wanted["overview"], name), rtol=1e-5, atol=1e-7
        )
    with np.errstate(divide="ignore"):
        np.testing.assert_allclose(found["lse"], np.log(p.sum(-1)), atol=1e-5)


def test_what_is_wrong_with_given_weights_shows():
    """Weight behind the mask, weights that are none, and rows that do not sum to 1 stand in the figures, and in those
    of their rows only.
    """
    p = np.tri(6) / np.arange(1, 7)[:, None]
    p[2, 5], p[3, 0], p[4, 1], p[5, :] = 0.5, np.nan, -0.25, 0.5
    found = figures.of_weights(p[None], np.zeros(6, bool), mask=rg.causal())
    rows = {name: values[0] for name, values in found["rows"].items()}
    assert rows["forbidden"][:3].tolist() == [0, 0, 0.5]
    assert rows["wrong"].tolist() == [0, 0, 0, 1, 1, 0]
    assert np.isnan(rows["entropy"]).tolist() == [False, False, False, True, True, False]
    assert rows["strongest"].tolist() == [0, 0, 5, -1, 0, 0]
    np.testing.assert_allclose(found["lse"][0, [0, 1, 2, 5]], np.log([1, 1, 1.5, 3]), atol=1e-6)
    call = Call("a", 0, "rows", "keys", found["lse"], given=p[None], mask=rg.causal(), rows=found["rows"])
    assert np.isnan(call.figures["forbidden"]).tolist() == [False]


def test_a_uniform_row_has_all_the_entropy_there_is():
    """Equal weights over n keys: entropy ln n, spread 1; a single visible key: both 0."""
    q = k = np.zeros((1, 5, 4), np.float32)
    rows = figures.measured(q, k, np.zeros(5, bool))["rows"]
    np.testing.assert_allclose(rows["entropy"], math.log(5), rtol=1e-6)
    np.testing.assert_allclose(rows["spread"], 1, rtol=1e-6)
    alone = figures.measured(q, k, np.zeros(5, bool), mask=rg.key == rg.query)["rows"]
    assert not alone["entropy"].any()
    assert not alone["spread"].any()


def test_means_leave_out_rows_that_see_nothing():
    """A head's figure is the mean over the rows that may attend; a NaN in one of them shows, and no such row at all is
    NaN.
    """
    q, k = np.random.default_rng(0).standard_normal((2, 2, 6, 4), np.float32)
    q[1, 4, 0] = np.nan
    mask = (rg.query >= 2) & (rg.key < 5)
    found = figures.measured(q, k, np.zeros(6, bool), mask=mask)
    call = Call("a", 0, "rows", "keys", found["lse"], q, k, mask, None, 1.0, rows=found["rows"])
    np.testing.assert_allclose(call.figures["entropy"][0], found["rows"]["entropy"][0, 2:].mean(), rtol=1e-6)
    assert np.isnan(call.figures["entropy"][1])
    assert found["rows"]["wrong"].sum(1).tolist() == [0, 5]
    none = figures.measured(q, k, np.zeros(6, bool), mask=rg.key < 0)
    assert np.isnan(Call("a", 0, "", "", none["lse"], q, k, rows=none["rows"]).figures["maximum"]).all()


def test_figures_grow_with_the_rows():
    """Everything that a run records about 20,000 tokens takes a few megabytes, where the matrix would be 1.6 GB."""
    n = 20_000
    q, k = np.random.default_rng(0).standard_normal((2, 1, n, 8), np.float32)
    mask = rg.causal() & rg.window(500)
    tracemalloc.start()
    found = figures.measured(q, k, np.arange(n) == 0, mask=mask, scale=8**-0.5)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 32 << 20
    last = rg.attention_weights(q, k, mask=mask, rows=[n - 1])[0, 0]
    np.testing.assert_allclose(found["rows"]["maximum"][0, -1], last.max(), rtol=1e-5)
    np.testing.assert_allclose(found["overview"].share[0, -1].sum(), 1, rtol=1e-5)


@pytest.mark.spread
@pytest.mark.parametrize("rules", [{}, {"score": rg.score + 1e5}], ids=["products", "bias"])
@pytest.mark.parametrize("small", [0, 1 << 18], ids=["compiled", "small"])
@pytest.mark.parametrize("size", [1e3, 1e4, 1e5])
def test_weights_are_right_however_large_the_scores(size, small, rules, monkeypatch):
    """A part that all scores share changes no weight: float32 numbers with scores of 100,000 give weights within the
    codes' error.
    """
    monkeypatch.setattr(figures, "SMALL", small)
    monkeypatch.setattr(tiles, "SMALL", small)
    q, k = np.random.default_rng(0).standard_normal((2, 1, 64, 16), dtype=np.float32)
    if not rules:
        q[..., 0] = k[..., 0] = np.sqrt(4 * size)
    scores = q.astype(float) @ k.astype(float).swapaxes(1, 2) / 4
    p = np.exp(scores - scores.max(-1, keepdims=True))
    p /= p.sum(-1, keepdims=True)
    problem = Problem.of(q, k, None, **rules)
    found = figures.measured(q, k, np.zeros(64, bool), score=problem.score, scale=0.25)
    call = Call("a", 0, "rows", "keys", score=problem.score, scale=0.25, q=q, k=k, **found)
    assert np.abs(found["lse"]).max() > 0.9 * (size if not rules else 1e5)
    whole = call.weights()
    np.testing.assert_allclose(whole, p, rtol=FINE_ERROR)
    np.testing.assert_allclose(call.weights(rows=[5], keys=[3, 9]), p[:, 5:6, [3, 9]], rtol=FINE_ERROR)
    np.testing.assert_allclose(tiles.tile(call, 0, 0, 0, 0).share, p[0], rtol=FINE_ERROR)
    np.testing.assert_allclose(tiles.tile(call, 0, 3, 0, 0).share.sum(1), 1, rtol=FINE_ERROR)
    np.testing.assert_allclose(found["rows"]["maximum"], p.max(-1), rtol=FINE_ERROR)
    np.testing.assert_allclose(found["received"], p.sum(1), rtol=FINE_ERROR)


def test_figures_of_a_call_without_any():
    """A call that was kept without its rows has no means, and says so by having none."""
    q = k = np.zeros((1, 4, 8))
    assert Call("a", 0, "rows", "keys", np.full((1, 4), np.log(4)), q, k).figures == {}
