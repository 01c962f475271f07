"""What a page shows first: the head and row that attend most to a distant word of their own, or what was asked for."""

import dataclasses
import io
import re

import numpy as np
import pytest
from rich.console import Console

import regard as rg
from regard.lens import Axis, Call, Run
from regard.lens.look import of_arrays
from regard.lens.runs.first_view import choose
from regard.lens.terminal import summary
from tests.support.browser import example
from tests.support.engines import normal
from tests.support.refusals import refusing

WORDS = ("[CLS]", "the", "cat", "saw", "the", "black", "dog", "[SEP]")


def toy(*layers, n=8):
    """Layers of two heads that look at themselves, but for the rows that are told to look elsewhere: {head: {row:
    key}}.
    """
    weights = np.array([[np.eye(n)] * 2] * len(layers))
    for layer, rows_by_head in zip(weights, layers):
        for head, rows in rows_by_head.items():
            layer[head, [*rows]] = 0.1 * np.eye(n)[[*rows]] + 0.9 * np.eye(n)[[*rows.values()]]
    return run_of(weights, WORDS[:n])


def run_of(weights, tokens):
    """A run of one call for each array of weights (H, n, n)."""
    axis = Axis.of(tokens, [token.startswith("[") for token in tokens])
    calls = [Call("", at, "text", "text", np.zeros(each.shape[:2]), given=each) for at, each in enumerate(weights)]
    return Run("toy", "text", {"text": axis}, tuple(calls))


@pytest.mark.parametrize(
    ("rows", "hub"),
    [
        (dict.fromkeys(range(8), 2), True),
        (dict.fromkeys((4, 5, 6, 7), 2), True),  # row 2 attends to itself: four of six ordinary rows
        (dict.fromkeys((4, 5, 7), 2), False),  # half of them
        (dict.fromkeys(range(1, 6), 0) | {6: 2}, True),  # five of six to a special token
        (dict.fromkeys(range(1, 5), 0) | {6: 2}, False),  # two thirds
    ],
)
def test_a_head_in_which_all_rows_attend_to_one_word_comes_last(rows, hub):
    """Its weights are larger, but say nothing about a row; it is chosen only if it is asked for, or alone."""
    run = toy({0: rows, 1: {3: 1}})
    assert choose(run).head == hub
    assert choose(run, head=0).head == 0
    assert choose(toy({0: rows, 1: rows})).head == 0


def test_plain_positions_beside_a_text_come_last():
    """As those of an encoder of images, whose patches are not known."""
    run = toy({0: {6: 0}}, {0: {6: 3}})
    run.axes["plain"] = Axis.of(8, name="plain")
    seeing = dataclasses.replace(run.calls[0], queries="plain", keys="plain")
    assert choose(dataclasses.replace(run, calls=(seeing, run.calls[1]))).call == 1


def test_what_was_asked_for_is_chosen():
    """A call, head and token that are named are kept; a token can be a position or a word, whatever its case, also
    where it is cut into several tokens: its last one.
    """
    run = run_of([np.full((1, 5, 5), 0.2)], (" The", " ani", "mal", " 3", "."))
    for token, expected in {"2": 2, "the": 0, "Animal": 2, "mal": 2, "3": 3, ".": 4}.items():
        assert choose(run, token=token).query == expected
    run = toy({0: {5: 1}, 1: {6: 2}}, {})
    for asked, expected in (
        ({"token": "5"}, (0, 0, 5)),
        ({"token": "dog"}, (0, 1, 6)),
        ({"token": "DOG", "head": 0}, (0, 0, 6)),
        ({"call": 1, "head": 1}, (1, 1, 1)),
    ):
        assert dataclasses.astuple(choose(run, **asked))[:3] == expected
    for asked, said in (
        ({"call": 2}, "no such call.*call 2.*0 to 1"),
        ({"call": 1, "head": 2}, "no such head.*head 2 of call 1.*0 to 1"),
        ({"head": -1}, "no such head"),
        ({"token": "horse"}, "no such token.*'horse'.*position from 0 to 7.*black dog"),
        ({"token": "8"}, "no such token"),
    ):
        with refusing(said):
            choose(run, **asked)


def test_where_no_row_tells_anything_one_that_may_attend_to_many_keys_is_shown():
    """The first rows of a causal model have large weights whatever the model does: the last ordinary row says more.
    Where no ordinary token is two away from another, the first head and the first ordinary token are shown.
    """
    weights = np.tril(np.ones((1, 60, 60))) / np.arange(1, 61)[:, None]
    found = choose(rg.look(weights=weights, mask=rg.causal(), special=[False] * 59 + [True]))
    assert found.why.startswith("the only head") and found.query == 58
    found = choose(toy({}, n=3))
    assert (found.call, found.head, found.query) == (0, 0, 1) and found.why.startswith("the first of all heads")


def test_every_key_of_another_text_is_distant():
    """Between two texts a look at the same position counts, unless it is special; a weight that is not a number does
    not.
    """
    run = toy({0: {2: 0}, 1: {4: 7}}, {0: {3: 0}})
    run.calls[1].given[1, 3, 3] = np.nan
    calls = tuple(dataclasses.replace(call, keys="source") for call in run.calls)
    found = choose(dataclasses.replace(run, axes=run.axes | {"source": run.axes["text"]}, calls=calls))
    assert (found.call, found.head) == (0, 0)
    # five of six ordinary rows look at an ordinary word: 7/8 more than with equal weights
    assert "73 points" in found.why


def test_what_is_shown_first_is_the_largest_on_average():
    """What each row has more on its strongest key than the others on average, and than equal weights, where both are
    ordinary tokens at least two apart and it is at least twice as much, decides, times the logarithm of the distance,
    on average; for a token, its own.
    """
    p = np.random.default_rng(0).dirichlet(np.ones(9) / 3, (3, 4, 9))
    run = run_of(p, ("[CLS]", *(f" w{i}" for i in range(1, 8)), "[SEP]"))
    key, i, largest = p.argmax(-1), np.arange(9), p.max(-1)
    others = (np.take_along_axis(p.sum(2), key, 2) - largest) / 8
    usual = np.maximum(others, 1 / 9)
    counts = (i % 8 > 0) & (key % 8 > 0) & (abs(i - key) > 1) & (largest >= 2 * usual)
    more = counts * (largest - usual)
    far = more * np.log2(np.maximum(2, abs(i - key)))
    call, head = np.unravel_index(far.sum(-1).argmax(), (3, 4))
    found = choose(run)
    assert (found.call, found.head, found.query) == (call, head, far[call, head].argmax())
    assert f"{100 * more[call, head].sum() / 7:.0f} points" in found.why
    assert choose(run, call=1).head == far[1].sum(-1).argmax()
    call, head = np.unravel_index(far[:, :, 4].argmax(), (3, 4))
    found = choose(run, token="w4")
    assert (found.call, found.head, found.query) == (call, head, 4)


# The summary in the terminal: its counts, and tokens of which no character is cut.

FAMILY = "👨\u200d👩\u200d👧\u200d👦"
TOKENS = ("[CLS]", f" {FAMILY}{FAMILY}{FAMILY}{FAMILY}", " e\u0301" * 14, " الحيوان", "⟨F0⟩⟨9F⟩⟨A6⟩", " [UNK]")


def printed(run, width=200, **shown):
    """The summary without colors."""
    file = io.StringIO()
    summary(Console(file=file, width=width, force_terminal=False, legacy_windows=False), run, choose(run, **shown))
    return file.getvalue()


def test_one_of_everything_is_singular():
    """A run of one call, one head and one token; an axis of positions whose name already says how many there are. The
    whole summary has at most 15 lines.
    """
    run, _ = example(1, 1, 1, tokens=("word",))
    assert "1 attention call × 1 head · 1 token\n" in printed(run)
    axes = {"1 position": run.axes["text"]}
    call = dataclasses.replace(run.calls[0], queries="1 position", keys="1 position")
    assert "1 head · 1 position\n" in printed(dataclasses.replace(run, axes=axes, calls=(call,)))
    assert "█…" not in printed(run, 50)  # the bar of all the weight
    several = printed(example(12, keys=5)[0], 60)
    assert "2 attention calls × 3 heads · 12 tokens · 5 source" in several
    assert "1 more key" in several and "1 more keys" not in several


@pytest.mark.parametrize("width", [60, 200])
def test_no_character_is_cut(width):
    """Names end between characters."""
    run, _ = example(len(TOKENS), 1, 1, tokens=TOKENS)
    axis = dataclasses.replace(run.axes["text"], unknown=((5, "𓀀"),))
    run = dataclasses.replace(run, axes={"text": axis})
    said = "".join(printed(run, width, token=str(row)) for row in range(len(TOKENS)))
    assert "𓀀 ([UNK])" in said and "⟨F0⟩⟨9F⟩" in said and "⟨F0…" not in said


def test_detectors_say_of_how_many_rows():
    """A head is not judged by one row without saying so; figures of special tokens need a special token."""

    def said_of(*tokens):
        q = normal(1, len(tokens), 8)
        return printed(of_arrays(q, q, q, tokens=tokens, special=[token[0] == "[" for token in tokens]))

    said = said_of(" a", " b", " c", " a", " d", " b", " e")
    assert re.search(r"the same token before \(2 rows\) +0\.0", said)
    assert re.search(r"the previous token +0\.0", said)
    assert "share of output" in said and len(said.splitlines()) <= 15
    once = said_of("[CLS]", " a", " a", "[SEP]")
    assert "the same token before (1 row) " in once
    assert "share of output" not in printed(of_arrays(*np.ones((2, 1, 5, 8))))
