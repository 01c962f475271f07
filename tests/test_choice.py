"""What a page shows first: the head and row that look most firmly at a distant word, or what was asked for."""

import dataclasses

import numpy as np
import pytest

import regard as rg
from regard.lens import Axis, Call, Run, choice, figures
from regard.lens.choice import choose

WORDS = ("[CLS]", "the", "cat", "saw", "the", "black", "dog", "[SEP]")


def toy(*layers, n=8, cross=False):
    """Layers of two heads that look at themselves, but for the rows that are told to look elsewhere: {head: {row: key}}."""
    special = (True, *[False] * (n - 2), True)
    axes = {"text": Axis("text", WORDS[:n], special)} | ({"source": Axis("source", WORDS[:n], special)} if cross else {})
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
    """The head that looks most at distant ordinary words is chosen, and in it the row that does; special tokens do not count."""
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
    """Between two texts a look at the same position counts, unless it is special; a weight that is not a number does not."""
    run = toy({0: {2: 0}, 1: {4: 7}}, {0: {3: 0}}, cross=True)
    run.calls[1].given[1, 3, 3] = np.nan
    found = choose(run)
    assert (found.call, found.head) == (0, 0)
    assert "85%" in found.why  # five of six ordinary rows look at an ordinary word, the sixth with 0.1
