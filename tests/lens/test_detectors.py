"""Head detectors and own measures: the weight on sets of keys that depend on the tokens."""

import numpy as np
import pytest

import regard as rg
from regard.language.expr import key, query
from regard.lens import Axis, token
from regard.lens.look import of_arrays, of_weights
from regard.lens.runs.detectors import DETECTORS, of_tokens
from tests.support.engines import normal
from tests.support.refusals import refusing

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
