"""What a page shows first: the head and row that attend most to a distant word of their own, or what was asked for."""

import dataclasses
import importlib.metadata
import random
import re

import numpy as np
import pytest

import regard as rg
from regard.lens import Axis, Call, Run
from regard.lens.runs import figures
from regard.lens.runs.first_view import choose

WORDS = ("[CLS]", "the", "cat", "saw", "the", "black", "dog", "[SEP]")


def toy(*layers, n=8, cross=False):
    """Layers of two heads that look at themselves, but for the rows that are told to look elsewhere: {head: {row:
    key}}.
    """
    special = (True, *[False] * (n - 2), True)
    axes = {"text": Axis("text", WORDS[:n], special)} | (
        {"source": Axis("source", WORDS[:n], special)} if cross else {}
    )
    calls = []
    for number, rows_by_head in enumerate(layers):
        weights = np.stack([np.eye(n)] * 2)
        for head, rows in rows_by_head.items():
            for row, key in rows.items():
                weights[head, row] = 0.1 * np.eye(n)[row] + 0.9 * np.eye(n)[key]
        found = figures.of_weights(weights, np.array(special))
        keys = "source" if cross else "text"
        calls.append(Call(f"layer {number}", number, "text", keys, given=weights, **found))
    return Run("toy", "text", axes, tuple(calls))


def test_the_choice_is_the_row_that_differs():
    """The head whose rows look most at distant ordinary words of their own is chosen, and in it the row that does;
    special tokens do not count.
    """
    found = choose(toy({}, {0: {2: 7, 3: 0}, 1: {5: 2, 7: 3}}))
    assert (found.call, found.head, found.query) == (1, 1, 5)
    assert "on average 13 points above other rows" in found.why  # 0.9 − 1/7 in one of six ordinary rows


def test_a_head_in_which_all_rows_attend_to_one_word_comes_last():
    """Its weights are larger, but say nothing about a row; it is chosen only if it is asked for, or alone."""
    hub = dict.fromkeys(range(8), 2)
    assert choose(toy({0: hub, 1: {5: 1}})).head == 1
    half = dict.fromkeys(range(4, 8), 2)  # row 2 attends to itself: four of six ordinary rows
    assert choose(toy({0: half, 1: {5: 1}})).head == 1
    assert choose(toy({0: hub, 1: {5: 1}}), head=0).head == 0
    assert choose(toy({0: hub, 1: hub})).why.startswith("the first of all heads")


def test_what_was_asked_for_is_chosen():
    """A call, head and token that are named are kept; a token can be a position or a word."""
    run = toy({0: {5: 1}, 1: {6: 2}}, {})
    assert choose(run, token="5").head == 0
    assert choose(run, token="dog").head == 1
    assert choose(run, head=0, token="DOG").query == 6
    assert dataclasses.astuple(choose(run, call=1, head=1))[:3] == (1, 1, 1)
    for asked, said in (
        ({"call": 2}, "no such call(.|\n)*call 2(.|\n)*0 to 1"),
        ({"call": 1, "head": 2}, "no such head(.|\n)*head 2 of call 1(.|\n)*0 to 1"),
        ({"head": 2}, "no such head"),
        ({"head": -1}, "no such head"),
        ({"token": "horse"}, "no such token(.|\n)*'horse'(.|\n)*position from 0 to 7"),
        ({"token": "8"}, "no such token"),
    ):
        with pytest.raises(rg.Refused, match=said):
            choose(run, **asked)


def test_a_text_without_distance_still_has_a_choice():
    """Where no ordinary token is two away from another, the first head and the first ordinary token are shown."""
    found = choose(toy({}, n=3))
    assert (found.call, found.head, found.query) == (0, 0, 1)
    assert found.why.startswith("the first of all heads")


def test_where_no_row_tells_anything_one_that_may_attend_to_many_keys_is_shown():
    """The first row of a causal model attends to itself whatever the model does: the last ordinary row says more."""
    weights = np.tril(np.ones((1, 6, 6))) / np.arange(1, 7)[:, None]
    run = rg.look(weights=weights, mask=rg.causal(), special=[False] * 5 + [True])
    assert choose(run).why.startswith("the only head") and choose(run).query == 4


def test_every_key_of_another_text_is_distant():
    """Between two texts a look at the same position counts, unless it is special; a weight that is not a number does
    not.
    """
    run = toy({0: {2: 0}, 1: {4: 7}}, {0: {3: 0}}, cross=True)
    weights = run.calls[1].given.copy()
    weights[1, 3, 3] = np.nan
    special = run.axes["text"].special
    broken = dataclasses.replace(run.calls[1], given=weights, **figures.of_weights(weights, special))
    run = dataclasses.replace(run, calls=(run.calls[0], broken))
    found = choose(run)
    assert (found.call, found.head) == (0, 0)
    assert "83 points" in found.why  # five of six ordinary rows look at an ordinary word, each at one of its own


def run_of(weights, tokens):
    """A run of one call for each array of weights (H, n, n)."""
    axes = {"text": Axis("text", tokens, tuple(token.startswith("[") for token in tokens))}
    calls = (
        Call(f"layer {at}", at, "text", "text", np.zeros(each.shape[:2]), given=each) for at, each in enumerate(weights)
    )
    return Run("toy", "text", axes, tuple(calls))


def own(weights):
    """What each row has more on its strongest key than the others on average, where that is an ordinary token at least
    two away, and at least twice as much.
    """
    found = np.zeros(weights.shape[:2])
    for h, i in np.ndindex(*found.shape):
        key = weights[h, i].argmax()
        others = np.delete(weights[h, :, key], i).mean()
        if 0 < i < 8 and 0 < key < 8 and abs(i - key) > 1 and weights[h, i, key] >= 2 * others:
            found[h, i] = weights[h, i, key] - others
    return found


def test_what_is_shown_first_is_the_largest_on_average():
    """What the ordinary rows have more than the others decides, times the logarithm of the distance, on average; for a
    token, its own.
    """
    weights = np.random.default_rng(0).dirichlet(np.ones(9) / 3, (3, 4, 9))
    run = run_of(weights, ("[CLS]", *(f" w{i}" for i in range(1, 8)), "[SEP]"))
    more = np.stack([own(each) for each in weights])
    far = more * np.log2(np.maximum(2, np.abs(weights.argmax(-1) - np.arange(9))))
    call, head = np.unravel_index(far.sum(-1).argmax(), (3, 4))
    found = choose(run)
    assert (found.call, found.head, found.query) == (call, head, far[call, head].argmax())
    assert f"{100 * more[call, head].sum() / 7:.0f} points" in found.why
    assert choose(run, call=1).head == far[1].sum(-1).argmax()
    call, head = np.unravel_index(far[:, :, 4].argmax(), (3, 4))
    found = choose(run, token="w4")
    assert (found.call, found.head, found.query) == (call, head, 4)


def prose(count, seed=0):
    """Sentences from the descriptions of installed packages."""
    found = set()
    for package in importlib.metadata.distributions():
        text = package.metadata.get("Description") or package.metadata.get_payload() or ""
        for paragraph in re.split(r"\n\s*\n", text):
            words = " ".join(paragraph.split())
            if 60 <= len(words) <= 400 and re.fullmatch(r"[A-Z][A-Za-z0-9 ,.'’;:()-]*[.]", words):
                found.add(words)
    return random.Random(seed).sample(sorted(found), count)


@pytest.mark.one_in(10)
@pytest.mark.parametrize("text", prose(30))
def test_the_first_head_of_prose_is_no_hub(text):
    """In MiniLM: the chosen row has at least twice the weight of the other rows on its strongest key, and most of the
    rows that attend most to a word attend most to another one.
    """
    run = rg.look(text=text)
    found = choose(run)
    call = run.calls[found.call]
    strongest = call.rows["strongest"][found.head]
    key = int(strongest[found.query])
    weights = call.weights(heads=found.head)[0]
    ordinary = ~np.array(run.axes[call.keys].special)
    assert weights[found.query].argmax() == key and ordinary[key] and abs(key - found.query) > 1
    assert weights[found.query, key] >= 2 * np.delete(weights[:, key], found.query).mean()
    words = strongest[ordinary & ordinary[strongest]]
    assert np.bincount(words).max() <= len(words) / 2
    assert np.bincount(strongest[ordinary]).max() <= ordinary.sum() * 2 / 3


def test_the_first_head_of_the_usual_sentence():
    """It relates the pronoun to its noun."""
    run = rg.look(text="The animal didn't cross the street because it was too tired.")
    found = choose(run)
    tokens = run.axes["text"].tokens
    assert (found.call, found.head, tokens[found.query]) == (3, 1, " it")
    assert tokens[run.calls[3].rows["strongest"][1, found.query]] == " animal"


def test_a_token_is_named_by_position_or_word():
    """A number is a position; a word is found whatever its case, also where it is cut into several tokens: its last
    one.
    """
    run = run_of([np.full((1, 5, 5), 0.2)], (" The", " ani", "mal", " 3", "."))
    for token, expected in (("2", 2), ("the", 0), ("Animal", 2), ("mal", 2), ("3", 3), (".", 4)):
        assert choose(run, token=token).query == expected
    with pytest.raises(rg.Refused, match=r"no such token(.|\n)*'dog'(.|\n)*position from 0 to 4(.|\n)*ani mal"):
        choose(run, token="dog")
