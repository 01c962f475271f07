"""Figures of rows and heads: what each means; computed from q and k, or from weights that were given."""

import dataclasses

import numpy as np
import pytest

import regard as rg
from regard.engines import choice
from regard.engines.choice import ONE_CALL
from regard.language.expr import head, key, query
from regard.lens import Axis, Call, token
from regard.lens.look import of_arrays, of_weights
from regard.lens.runs import figures, tiles
from regard.lens.runs.call import readers
from regard.lens.runs.codes import FINE_ERROR
from regard.lens.runs.detectors import DETECTORS, ROWS, of_tokens
from regard.lens.runs.figures import lengths
from tests.lens.minilm import SENTENCE, with_minilm
from tests.support.engines import at_every_pair, normal
from tests.support.lanes import by_name
from tests.support.refusals import refusing


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


# What moves: the lengths of values, and the share of special tokens in Σ p · length.


@pytest.mark.parametrize("groups", [1, 3])
def test_lengths_of_values(groups):
    """‖v‖ of the key head of each head; with an output projection, ‖W_o v‖ by its columns of the head."""
    v, w_o = normal(groups, 5, 4), normal(16, 3, 4, seed=1)
    own = np.repeat(v, 3 // groups, 0)
    for matrix, exact in ((None, own), (w_o.reshape(16, 12), np.einsum("hke,mhe->hkm", own, w_o))):
        np.testing.assert_allclose(lengths(v, 3, matrix), np.linalg.norm(exact, axis=-1), rtol=1e-6)


@pytest.mark.parametrize("n", [9, int((ONE_CALL / 2) ** 0.5) + 30])
def test_what_moves(n):
    """Σ p ‖v‖ of each row, and the share of special tokens in it, by brute force; in NumPy and compiled."""
    q, k, v = normal(3, 2, n, 8)
    special, sinks = np.arange(n) % 4 == 0, np.array([0.5, -1.0], np.float32)
    call = of_arrays(q, k[:1], v[:1], special=special, mask=rg.causal(), sinks=sinks).calls[0]
    parts = call.weights() * np.linalg.norm(v[0].astype(float), axis=-1)
    np.testing.assert_allclose(call.rows["moved"], parts.sum(-1), rtol=2e-5)
    np.testing.assert_allclose(call.rows["moved_special"], parts[:, :, special].sum(-1) / parts.sum(-1), atol=2e-6)
    np.testing.assert_allclose(call.figures["moved_special"], call.rows["moved_special"].mean(-1), rtol=1e-5)
    assert call.notes["lengths"] == "‖v‖" and call.lengths.shape == (2, n)


@with_minilm
def test_special_tokens_of_minilm_hold_half_of_the_weight_and_move_little(tmp_path):
    """Its output projection is known; the figures come back from a folder, also where values are not kept."""
    rg.look(text=SENTENCE, values=False, into=tmp_path / "run")
    run = rg.look(tmp_path / "run")
    held, moved = (np.mean([call.figures[name] for call in run.calls]) for name in ("special", "moved_special"))
    assert held == pytest.approx(0.498, abs=0.002) and moved == pytest.approx(0.137, abs=0.003)
    assert {call.notes["lengths"] for call in run.calls} == {"‖v W_o‖"} and run.calls[0].v is None


def test_values_without_a_length():
    """A value that is not finite makes the rows that attend to it no numbers, and no others. Without values nothing is
    said to move.
    """
    q, v = np.ones((2, 1, 4, 4), np.float32)
    v[0, 2, 1] = np.nan
    call = of_arrays(q, q, v, mask=rg.causal()).calls[0]
    assert np.isnan(call.rows["moved"]).tolist() == [[False, False, True, True]]
    bare = of_arrays(q, q).calls[0]
    assert bare.lengths is None and "moved" not in bare.rows and "lengths" not in bare.notes


# Head detectors and own measures: the weight on sets of keys that depend on the tokens.

WORDS = np.array(["[CLS]", "a", "b", "a", "c", "b", "a", "[SEP]", "[SEP]"])
SPECIAL, SAME = np.char.startswith(WORDS, "["), WORDS[:, None] == WORDS
ROW, KEY = np.mgrid[:9, :9]
BEFORE = SAME & ~SPECIAL & (KEY < ROW)
DETECTED = {"duplicate": BEFORE, "induction": np.pad(BEFORE[:, :-1], ((0, 0), (1, 0))) & (KEY < ROW)}


def judge(call, sets, allowed=True):
    """The weight of each row on its keys of a set, NaN in rows that may attend to none; the mean is over the others."""
    for name, keys in sets.items():
        keys = keys & allowed
        exact = np.where(keys.any(1), (keys * call.weights()).sum(-1), np.nan)
        np.testing.assert_allclose(call.rows[name], exact, atol=1e-6)
        np.testing.assert_allclose(call.figures[name], exact[:, keys.any(1)].mean(1), atol=1e-6)


@pytest.fixture
def random():
    """Queries and keys of two heads."""
    return normal(2, 2, 9, 8)


@pytest.mark.parametrize("given", [False, True])
@pytest.mark.parametrize("mask", [None, rg.causal(), rg.causal() & rg.window(3)], ids=["all", "causal", "window"])
@pytest.mark.filterwarnings("ignore:invalid value")
def test_detectors_are_their_definitions(random, mask, given):
    """Special tokens have no duplicates; rows without such a key are no numbers, and not in the mean."""
    run = of_arrays(*random, mask=mask, tokens=WORDS, special=SPECIAL)
    if given:
        run = of_weights(run.calls[0].weights(), mask=mask, tokens=WORDS, special=SPECIAL)
    assert DETECTED.keys() == DETECTORS.keys()
    judge(run.calls[0], DETECTED, run.calls[0].allowed()[0])


def test_own_measures(random):
    """Rules over the tokens and a word, a rule without them, an array and a callable; one replaces the detector of its
    name, also where no token is repeated, where there is nothing else to detect. Numbers are those of the vocabulary.
    """
    measures = {
        "equal": token[key] == token[query],
        "b": token[key] == token["b"],
        "ahead": key > query,
        "table": np.eye(9, dtype=bool)[::-1].copy(),
        "called": lambda b, h, i, j: i - j == 2,
        "induction": (key > 0) & (token[query] != token[key - 1]),
    }
    call = rg.look(random[0], k=random[1], tokens=WORDS, special=SPECIAL, measures=measures).calls[0]
    judge(call, {"equal": SAME, "ahead": KEY > ROW, "table": ROW + KEY == 8, "called": ROW - KEY == 2})
    judge(call, {"induction": (KEY > 0) & ~np.roll(SAME, 1, 1), "duplicate": BEFORE, "b": SAME[2] & (KEY >= 0)})
    axis = Axis.of([" it", "x"], ids=[7, 9])
    words = {word: key == token[word] for word in ("it", "x", "z")}
    assert [str(rule)[-2:] for rule in of_tokens(axis, words).values()] == [" 7", " 9", "-1"]
    for more, kept in (({}, ()), ({"measures": {"induction": key > query}}, ("induction",))):  # no token is repeated
        call = rg.look(random[0], k=random[1], tokens="[bcdefgh[", special=KEY[0] % 8 == 0, **more).calls[0]
        assert DETECTORS.keys() & {*call.figures, *call.rows} == {*kept}
    judge(call, {"induction": KEY > ROW})


def test_what_is_no_measure_is_refused(kept):
    """All reasons at once, names that are taken or no names included; and a folder of a run takes no measures."""
    q, names = np.ones((1, 3, 4), np.float32), ("entropy", "previous", "_x", "a b", "x" * 65, "", 3, "ä")
    with refusing("measures= is not a dict"):
        rg.look(q, k=q, measures=[key == query])
    with refusing(r"none of entropy, [^\n]*previous") as refused:
        rg.look(q, k=q, measures={"a": key + 1} | dict.fromkeys(names, key == query))
    assert [reason.what for reason in refused.value.reasons[1:]] == ["a measure needs another name"] * len(names)
    with refusing("measures= has no meaning"):
        rg.look(kept, measures={})


def test_statistics_of_a_call(random):
    """They are those of attention with its rules. The axis has the tokens as a table; with the one that belongs to no
    run the refusal names it.
    """
    rules = {"mask": rg.causal(), "score": rg.softcap(2.0), "scale": 0.5}
    run = rg.look(random[0], k=random[1], tokens=WORDS, special=SPECIAL, **rules)
    (call,), of_run = run.calls, run.axes["keys"].token
    found = call.stats(["entropy", rg.mass((key < query) & (of_run[key] == of_run[query]), name="same")])
    np.testing.assert_allclose(found["same"], (SAME * (KEY < ROW) * call.weights()).sum(-1), atol=1e-6)
    np.testing.assert_allclose(found["entropy"], rg.attention_stats(*random, of="entropy", **rules).entropy, rtol=1e-5)
    for free in (token[key] == token[query], lambda b, h, q, k: token[q] == token[k]):
        with refusing(r"the tokens of no run.*run\.axes\['keys'\]\.token"):
            call.stats(rg.mass(free, name="same"))
    with refusing("only the weights of this call are known"):
        of_weights(call.weights()).calls[0].stats("entropy")


# The mean weight of the other rows, how many rows may attend to a key, and which rows figures leave out.

MASKS = {
    "none": None,
    "causal": rg.causal(),
    "window": rg.causal() & rg.window(3),
    "by head": (key + head) % 3 != query % 2,
    "a table": rg.documents(np.arange(40) // 7),
    "no row at all": key > 40,
}


@pytest.mark.parametrize("start", [0, 5])
@by_name("mask", MASKS)
def test_readers_are_the_rows_that_the_mask_allows(mask, start):
    """Of every head, as many as in the table of all pairs; rows may begin later on the key axis."""
    H, Q, K = 3, 19, 26
    allowed = at_every_pair(rg.everything() if mask is None else mask, (1, H, Q, K), start)[0]
    assert np.array_equal(readers(mask, (H, Q, K), start), allowed.sum(1))
    n = int(ONE_CALL**0.5) + 40 + start  # the compiled engine counts the same
    assert np.array_equal(readers(rg.causal(), (2, n - start, n), start)[1], n - np.arange(n).clip(start))


@pytest.mark.parametrize("given", [False, True])
@pytest.mark.parametrize("mask", [MASKS[name] for name in ("none", "causal", "by head", "a table")])
def test_others_are_the_mean_of_the_other_rows(mask, given):
    """Over the rows that may attend to the key, without the row itself; NaN without such a row."""
    q, k = normal(2, 2, 40, 8)
    call = of_arrays(q, k, mask=mask).calls[0]
    call = of_weights(call.weights(), mask=mask).calls[0] if given else call
    p, allowed = call.weights(), call.allowed()
    rows, found = allowed.sum(1, keepdims=True) - allowed, call.others()
    exact = np.where(rows > 0, (p.sum(1, keepdims=True) - p) / np.maximum(rows, 1), np.nan)
    np.testing.assert_allclose(found, exact, atol=1e-6)
    np.testing.assert_array_equal(call.others(rows=[4], keys=[2, 3], heads=1), found[1:, 4:5, 2:4])
    bare = dataclasses.replace(call, received=None)  # has no sums yet
    np.testing.assert_allclose(bare.others(), found, atol=1e-6)


@pytest.mark.parametrize(("start", "more"), [(0, {}), (3, {}), (0, {"mask": rg.documents(np.arange(9) // 4)})])
def test_figures_leave_out_rows_that_cannot_have_them(start, more):
    """A head that always attends to the previous key has 100 %: the first row has none, nor the first of a document.
    Uniform attention has 100 % of the largest entropy, also where the first row has one key; no row more is no number.
    """
    at = start + np.arange(9)
    first = at % 4 == 0 if more else at == 0
    weights = np.eye(9 + start)[at - ~first]
    assert of_weights(weights[None], query_start=start, **more).calls[0].figures["previous"] == 1
    for length, exact in ((1, np.nan), (2, 1), (9, 1)):
        q = np.ones((1, length, 4))
        figures = of_arrays(q, q, mask=rg.causal()).calls[0].figures
        assert figures["spread"] == pytest.approx(exact, abs=1e-6, nan_ok=True)
