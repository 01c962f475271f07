"""Head detectors and own measures: the weight on sets of keys that depend on the tokens."""

import numpy as np
import pytest

import regard as rg
from regard.language.expr import key, query
from regard.lens import Axis, page, token
from regard.lens.look import of_arrays, of_weights
from regard.lens.runs.detectors import DETECTORS, of_tokens
from tests.lens.minilm import with_minilm

WORDS = ("[CLS]", "a", "b", "a", "c", "b", "a", "[SEP]", "[SEP]")
SPECIAL = np.array([word[0] == "[" for word in WORDS])


SAME = np.array([[a == b for b in WORDS] for a in WORDS])
ROW, KEY = np.mgrid[:9, :9]
BEFORE = SAME & ~SPECIAL & (KEY < ROW)
DETECTED = {"duplicate": BEFORE, "induction": np.pad(BEFORE[:, :-1], ((0, 0), (1, 0))) & (KEY < ROW)}


def judge(call, sets, allowed=True):
    """The weight of each row on its keys of a set, NaN in rows that may attend to none; the mean is over the others."""
    for name, keys in sets.items():
        keys = keys & allowed
        exact = np.where(keys.any(1), np.where(keys, call.weights(), 0).sum(-1), np.nan)
        np.testing.assert_allclose(call.rows[name], exact, atol=1e-6)
        np.testing.assert_allclose(call.figures[name], exact[:, keys.any(1)].sum(1) / keys.any(1).sum(), atol=1e-6)


@pytest.fixture
def random():
    """Queries and keys of two heads."""
    return np.random.default_rng(0).standard_normal((2, 2, 9, 8), dtype=np.float32)


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


@pytest.mark.parametrize(("words", "kept"), [("abababaca", True), ("abcdefghi", False)])
def test_a_measure_replaces_the_detector_of_its_name(random, words, kept):
    """A rule of one's own for induction, also where no token is repeated; other detectors stay."""
    own = (key > 0) & (token[query] != token[key - 1])
    call = rg.look(random[0], k=random[1], tokens=list(words), measures={"induction": own}).calls[0]
    judge(call, {"induction": (KEY > 0) & (np.array(list(words))[:, None] != np.array(list(" " + words[:-1])))})
    assert ("duplicate" in call.figures) == kept


def test_without_repeated_tokens_there_is_nothing_to_detect():
    """Neither in a text of different tokens, nor between two texts."""
    q = np.ones((1, 4, 4), np.float32)
    for more in ({}, {"tokens": ("[A]", "b", "c", "[A]"), "special": [1, 0, 0, 1]}):
        call = of_arrays(q, q, **more).calls[0]
        assert not DETECTORS.keys() & {*call.figures, *call.rows}
    assert of_tokens(Axis.of(["a", "b"]), {}) == {}


def test_own_measures(random):
    """A rule over the tokens, a rule without them, an array and a callable."""
    measures = {
        "equal": token[key] == token[query],
        "ahead": key > query,
        "table": np.eye(9, dtype=bool)[::-1].copy(),
        "called": lambda b, h, i, j: i - j == 2,
    }
    call = rg.look(random[0], k=random[1], tokens=WORDS, special=SPECIAL, measures=measures).calls[0]
    own = SAME & ~(SPECIAL[:, None] & (ROW != KEY))
    judge(call, {"equal": own, "ahead": KEY > ROW, "table": ROW + KEY == 8, "called": ROW - KEY == 2})


@with_minilm
def test_own_measures_of_a_model_are_saved_and_shown(tmp_path):
    """The figures come back from the folder, and the page names them."""
    run = rg.look(text="a cat and a dog", measures={"two_back": key == query - 2}, into=tmp_path / "run")
    again = rg.look(tmp_path / "run")
    for before, after in zip(run.calls, again.calls, strict=True):
        exact = np.diagonal(before.weights(), -2, 1, 2).mean(-1)
        for call in (before, after):
            assert call.figures.keys() >= {"two_back", *DETECTORS}
            np.testing.assert_allclose(call.figures["two_back"], exact, atol=1e-6)
    assert '"two_back"' in page(again)


@pytest.mark.parametrize("name", ["entropy", "previous", "_x", "a b", "x" * 65, "", 3, "ä"])
def test_names_that_are_taken_or_no_names(name):
    """They are refused with what is taken."""
    q = np.ones((1, 3, 4), np.float32)
    with pytest.raises(rg.Refused, match=r"a measure needs another name(.|\n)*none of entropy, .*previous"):
        rg.look(q, k=q, measures={name: key == query})


def test_what_is_no_measure_is_refused(kept):
    """All reasons at once; and a folder of a run takes no measures."""
    q = np.ones((1, 3, 4), np.float32)
    with pytest.raises(rg.Refused, match="measures= is not a dict"):
        rg.look(q, k=q, measures=[key == query])
    with pytest.raises(rg.Refused) as refused:
        rg.look(q, k=q, measures={"a": key + 1, "b c": key == query})
    assert len(refused.value.reasons) == 2
    with pytest.raises(rg.Refused, match="measures= has no meaning"):
        rg.look(kept, measures={})


def test_statistics_of_rules_over_tokens(random):
    """The axis has the tokens as a table; with the one that belongs to no run the refusal names it."""
    run = rg.look(random[0], k=random[1], tokens=WORDS, special=SPECIAL)
    (call,), of_run = run.calls, run.axes["keys"].token
    found = call.stats(rg.mass((key < query) & (of_run[key] == of_run[query]), name="same"))["same"]
    np.testing.assert_allclose(found, np.where(BEFORE, call.weights(), 0).sum(-1), atol=1e-6)
    for free in (token[key] == token[query], lambda b, h, q, k: token[q] == token[k]):
        with pytest.raises(rg.Refused, match=r"the tokens of no run(.|\n)*run\.axes\['keys'\]\.token"):
            call.stats(["entropy", rg.mass(free, name="same")])


def test_statistics_of_a_call(random):
    """They are those of attention with its rules."""
    rules, of = {"mask": rg.causal(), "score": rg.softcap(2.0), "scale": 0.5}, ["entropy", rg.mass(key < 3, name="a")]
    call = rg.look(random[0], k=random[1], **rules).calls[0]
    found, right = call.stats(of), rg.attention_stats(*random, of=of, **rules)
    for name in ("entropy", "a"):
        np.testing.assert_allclose(found[name], right[name], rtol=1e-5)
    with pytest.raises(rg.Refused, match="only the weights of this call are known"):
        of_weights(call.weights()).calls[0].stats("entropy")
