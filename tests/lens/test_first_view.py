"""What a page shows first: the head and row that look most firmly at a distant word, or what was asked for."""

import dataclasses

import numpy as np
import pytest

import regard as rg
from regard.lens import Axis, Call, Run
from regard.lens.runs import figures
from regard.lens.runs import first_view as choice
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


@pytest.mark.parametrize("short", [0, 1 << 18], ids=["long", "short"])
def test_the_choice_is_the_firmest_distant_look(short, monkeypatch):
    """The head that looks most at distant ordinary words is chosen, and in it the row that does; special tokens do not
    count.
    """
    monkeypatch.setattr(choice, "SHORT", short)
    found = choose(toy({}, {0: {2: 7, 3: 0}, 1: {5: 2, 7: 3}}))
    assert (found.call, found.head, found.query) == (1, 1, 5)
    assert "15%" in found.why  # 0.9 in one of six ordinary rows


def test_what_was_asked_for_is_chosen():
    """A call, head and token that are named are kept; a token can be a position or a word."""
    run = toy({0: {5: 1}, 1: {6: 2}}, {})
    assert choose(run, token="5").head == 0
    assert choose(run, token="dog").head == 1
    assert choose(run, head=0, token="DOG").query == 6
    assert dataclasses.astuple(choose(run, call=1, head=1))[:3] == (1, 1, 1)
    for asked in ({"call": 2}, {"head": 2}, {"head": -1}, {"token": "horse"}, {"token": "8"}):
        with pytest.raises(rg.Refused, match="no such"):
            choose(run, **asked)


def test_a_text_without_distance_still_has_a_choice():
    """Where no ordinary token is two away from another, the first head and the first ordinary token are shown."""
    found = choose(toy({}, n=3))
    assert (found.call, found.head, found.query) == (0, 0, 1)
    assert found.why.startswith("the first of all heads")


def test_every_key_of_another_text_is_distant():
    """Between two texts a look at the same position counts, unless it is special; a weight that is not a number does
    not.
    """
    run = toy({0: {2: 0}, 1: {4: 7}}, {0: {3: 0}}, cross=True)
    run.calls[1].given[1, 3, 3] = np.nan
    found = choose(run)
    assert (found.call, found.head) == (0, 0)
    assert "85%" in found.why  # five of six ordinary rows look at an ordinary word, the sixth with 0.1


def run_of(weights, tokens):
    """A run of one call for each array of weights (H, n, n)."""
    axes = {"text": Axis("text", tokens, tuple(token.startswith("[") for token in tokens))}
    calls = (
        Call(f"layer {at}", at, "text", "text", np.zeros(each.shape[:2]), given=each) for at, each in enumerate(weights)
    )
    return Run("toy", "text", axes, tuple(calls))


def test_the_firmest_look_is_shown_first():
    """The largest weight from an ordinary token to an ordinary one at least two away decides, on average over the
    rows.
    """
    random = np.random.default_rng(0)
    weights = random.dirichlet(np.ones(9) / 3, (3, 4, 9))
    run = run_of(weights, ("[CLS]", *(f" w{i}" for i in range(1, 8)), "[SEP]"))
    firm = weights.copy()
    rows, keys = np.mgrid[:9, :9]
    firm[:, :, (np.abs(rows - keys) < 2) | np.isin(rows, (0, 8)) | np.isin(keys, (0, 8))] = 0
    largest = firm.max(-1)
    call, head = np.unravel_index(largest.sum(-1).argmax(), (3, 4))
    found = choose(run)
    assert (found.call, found.head, found.query) == (call, head, largest[call, head].argmax())
    assert f"{largest[call, head].sum() / 7:.0%}" in found.why
    assert choose(run, call=1).head == largest[1].sum(-1).argmax()
    call, head = np.unravel_index(largest[:, :, 4].argmax(), (3, 4))
    found = choose(run, token="w4")
    assert (found.call, found.head, found.query) == (call, head, 4)


def test_a_token_is_named_by_position_or_word():
    """A number is a position; a word is found whatever its case, also where it is cut into several tokens: its last
    one.
    """
    run = run_of([np.full((1, 5, 5), 0.2)], (" The", " ani", "mal", " 3", "."))
    for token, expected in (("2", 2), ("the", 0), ("Animal", 2), ("mal", 2), ("3", 3), (".", 4)):
        assert choose(run, token=token).query == expected
    with pytest.raises(rg.Refused, match=r"no such token(.|\n)*'dog'(.|\n)*position from 0 to 4(.|\n)*ani mal"):
        choose(run, token="dog")


def test_places_that_are_not_there_are_refused():
    """Calls and heads outside the run are refused with what there is."""
    run = run_of([np.full((2, 3, 3), 1 / 3)] * 2, ("a", "b", "c"))
    with pytest.raises(rg.Refused, match=r"no such call(.|\n)*call 2(.|\n)*0 to 1"):
        choose(run, call=2)
    with pytest.raises(rg.Refused, match=r"no such head(.|\n)*head 2 of call 1(.|\n)*0 to 1"):
        choose(run, call=1, head=2)
