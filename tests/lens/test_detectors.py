"""Head detectors and own measures: the weight on sets of keys that depend on the tokens."""

import numpy as np
import pytest

import regard as rg
from regard.language.expr import key, query
from regard.lens import Axis, page, token
from regard.lens.look import of_arrays, of_weights
from regard.lens.runs.detectors import DETECTORS, of_tokens

WORDS = ("[CLS]", "a", "b", "a", "c", "b", "a", "[SEP]", "[SEP]")
SPECIAL = np.array([word[0] == "[" for word in WORDS])


def expected(p, allowed, kind):
    """The weight of each row on the keys of a detector, by a loop; NaN in rows that may attend to none."""
    found = np.full(p.shape[:2], np.nan)
    for h, i in np.ndindex(*found.shape):
        before = [j for j in range(i) if WORDS[j] == WORDS[i] and not SPECIAL[i]]
        keys = before if kind == "duplicate" else [j + 1 for j in before if j + 1 < i]
        keys = [j for j in keys if allowed[i, j]]
        if keys:
            found[h, i] = p[h, i, keys].sum()
    return found


@pytest.mark.parametrize("given", [False, True])
@pytest.mark.parametrize("mask", [None, rg.causal(), rg.causal() & rg.window(3)], ids=["all", "causal", "window"])
def test_detectors_are_what_a_loop_finds(mask, given):
    """Special tokens have no duplicates; rows without such a key are no numbers, and not in the mean."""
    q, k = np.random.default_rng(0).standard_normal((2, 2, 9, 8), dtype=np.float32)
    run = of_arrays(q, k, mask=mask, tokens=WORDS, special=SPECIAL)
    if given:
        run = of_weights(run.calls[0].weights(), mask=mask, tokens=WORDS, special=SPECIAL)
    call = run.calls[0]
    for kind in DETECTORS:
        exact = expected(call.weights(), call.allowed()[0], kind)
        np.testing.assert_allclose(call.rows[kind], exact, atol=1e-6)
        if np.isfinite(exact).any():
            np.testing.assert_allclose(call.figures[kind], np.nanmean(exact, 1), atol=1e-6)
        else:
            assert np.isnan(call.figures[kind]).all()


def test_a_head_that_copies_is_an_induction_head():
    """A head that attends to what followed its token before has 100 %, one that attends to the token itself 0."""
    words = list("abcdabcd")
    copying = np.eye(8)[[0, 1, 2, 3, 1, 2, 3, 4]]
    call = of_weights(np.stack([copying, np.eye(8)]), mask=rg.causal(), tokens=words).calls[0]
    assert call.figures["induction"].tolist() == [1, 0] and call.figures["duplicate"].tolist() == [0, 0]


def test_a_measure_replaces_the_detector_of_its_name():
    """A rule of one's own for induction, also where no token is repeated; other detectors stay."""
    q = np.random.default_rng(0).standard_normal((2, 4, 8), dtype=np.float32)
    own = (key > 0) & (token[query] != token[key - 1])
    for words, kept in ((list("abab"), True), (list("abcd"), False)):
        call = rg.look(q, k=q, mask=rg.causal(), tokens=words, measures={"induction": own}).calls[0]
        other = np.array(words)[:, None] != np.array(["", *words[:-1]])
        other[:, 0] = False
        allowed = other & np.tril(np.ones((4, 4), bool))
        exact = np.where(allowed, call.weights(), 0).sum(-1)[:, allowed.any(-1)].mean(-1)
        np.testing.assert_allclose(call.figures["induction"], exact, atol=1e-6)
        assert ("duplicate" in call.figures) == kept


def test_without_repeated_tokens_there_is_nothing_to_detect():
    """Neither in a text of different tokens, nor between two texts."""
    q = np.ones((1, 4, 4), np.float32)
    assert not DETECTORS.keys() & of_arrays(q, q).calls[0].figures.keys()
    assert (
        not DETECTORS.keys()
        & of_arrays(q, q, tokens=("[A]", "b", "c", "[A]"), special=[1, 0, 0, 1]).calls[0].rows.keys()
    )
    assert of_tokens(Axis.of(["a", "b"]), {}) == {}


def test_own_measures():
    """A rule over the tokens, a rule without them, an array and a callable; also those that the run is saved with."""
    q, k = np.random.default_rng(0).standard_normal((2, 2, 9, 8), dtype=np.float32)
    same = np.array([[a == b for b in WORDS] for a in WORDS])
    measures = {
        "equal": token[key] == token[query],
        "ahead": key > query,
        "table": np.eye(9, dtype=bool)[::-1].copy(),
        "called": lambda b, h, i, j: i - j == 2,
    }
    call = rg.look(q, k=k, tokens=WORDS, special=SPECIAL, measures=measures).calls[0]
    p = call.weights()
    i, j = np.mgrid[:9, :9]
    own = same & ~(SPECIAL[:, None] & (i != j))
    for name, keys in {"equal": own, "ahead": j > i, "table": i + j == 8, "called": i - j == 2}.items():
        exact = np.where(keys.any(1), np.where(keys, p, 0).sum(-1), np.nan)
        np.testing.assert_allclose(call.rows[name], exact, atol=1e-6)
        np.testing.assert_allclose(call.figures[name], np.nanmean(exact, 1), atol=1e-6)


def test_own_measures_of_a_model_are_saved_and_shown(tmp_path):
    """The figures come back from the folder, and the page names them."""
    run = rg.look(text="a cat and a dog", measures={"two_back": key == query - 2}, into=tmp_path / "run")
    again = rg.look(tmp_path / "run")
    for before, after in zip(run.calls, again.calls, strict=True):
        assert before.figures.keys() == after.figures.keys() >= {"two_back", "duplicate", "induction"}
        np.testing.assert_array_equal(before.figures["two_back"], after.figures["two_back"])
        p = before.weights()
        np.testing.assert_allclose(before.figures["two_back"], np.diagonal(p, -2, 1, 2).mean(-1), atol=1e-6)
    assert '"two_back"' in page(again)


@pytest.mark.parametrize("name", ["entropy", "previous", "_x", "a b", "x" * 65, "", 3, "ä"])
def test_names_that_are_taken_or_no_names(name):
    """They are refused with what is taken."""
    q = np.ones((1, 3, 4), np.float32)
    with pytest.raises(rg.Refused, match=r"a measure needs another name(.|\n)*none of entropy, .*previous"):
        rg.look(q, k=q, measures={name: key == query})


def test_what_is_no_measure_is_refused(tmp_path):
    """All reasons at once; and a folder of a run takes no measures."""
    q = np.ones((1, 3, 4), np.float32)
    with pytest.raises(rg.Refused, match="measures= is not a dict"):
        rg.look(q, k=q, measures=[key == query])
    with pytest.raises(rg.Refused) as refused:
        rg.look(q, k=q, measures={"a": key + 1, "b c": key == query})
    assert len(refused.value.reasons) == 2
    rg.look(q, k=q).save(tmp_path)
    with pytest.raises(rg.Refused, match="measures= has no meaning"):
        rg.look(tmp_path, measures={})


def test_statistics_of_rules_over_tokens():
    """The axis has the tokens as a table; with the one that belongs to no run the refusal names it."""
    q, k = np.random.default_rng(0).standard_normal((2, 2, 9, 8), dtype=np.float32)
    run = rg.look(q, k=k, mask=rg.causal(), tokens=WORDS, special=SPECIAL)
    of_run = run.axes[run.calls[0].keys].token
    rule = (key < query) & (of_run[key] == of_run[query])
    found = run.calls[0].stats(rg.mass(rule, name="same"))["same"]
    np.testing.assert_allclose(found, np.nan_to_num(run.calls[0].rows["duplicate"]), atol=1e-6)
    assert found.max() > 0.01
    for free in (token[key] == token[query], lambda b, h, q, k: token[q] == token[k]):
        with pytest.raises(rg.Refused, match=r"the tokens of no run(.|\n)*run\.axes\['keys'\]\.token"):
            run.calls[0].stats(["entropy", rg.mass(free, name="same")])


def test_statistics_of_a_call():
    """They are those of attention with its rules."""
    q, k = np.random.default_rng(0).standard_normal((2, 2, 9, 8), dtype=np.float32)
    call = rg.look(q, k=k, mask=rg.causal(), score=rg.softcap(2.0)).calls[0]
    found = call.stats(["entropy", rg.mass(key < 3, name="early")])
    p = call.weights()
    np.testing.assert_allclose(found["early"], p[:, :, :3].sum(-1), rtol=1e-5)
    np.testing.assert_allclose(found.entropy, -(p * np.log(np.where(p > 0, p, 1))).sum(-1), atol=1e-5)
    with pytest.raises(rg.Refused, match="only the weights of this call are known"):
        of_weights(p).calls[0].stats("entropy")
