"""The summary in the terminal: its counts, and tokens of which no character is cut."""

import dataclasses
import io
import re

import numpy as np
import pytest
from rich.cells import cell_len
from rich.console import Console

from regard.common.text.characters import characters
from regard.lens import Axis
from regard.lens.drawing.terminal import _color, matrix, summary
from regard.lens.look import of_arrays
from regard.lens.runs.first_view import choose
from regard.lens.runs.labels import visible
from tests.support.browser import example

FAMILY = "👨\u200d👩\u200d👧\u200d👦"
TOKENS = ("[CLS]", f" {FAMILY}{FAMILY}{FAMILY}{FAMILY}", " e\u0301" * 14, " الحيوان", "⟨F0⟩⟨9F⟩⟨A6⟩", " [UNK]")


def printed(run, width=200) -> str:
    """The summary without colors."""
    file = io.StringIO()
    console = Console(file=file, width=width, force_terminal=False, legacy_windows=False)
    summary(console, run, choose(run))
    return file.getvalue()


def test_one_of_everything_is_singular():
    """A run of one call, one head and one token."""
    said = printed(example(1, 1, 1, tokens=("word",))[0])
    assert "1 attention call × 1 head · 1 token\n" in said
    assert not re.search(r"(?<![\d.])\b1 \w+s\b(?! )|\w\(s\)", said.split("\n")[0])
    several = printed(example(12, 2, 3, keys=9)[0])
    assert "2 attention calls × 3 heads · 12 tokens · 9 source" in several
    assert "1 more key" in several and "1 more keys" not in several


def test_an_axis_of_positions_is_counted_once():
    """Its name already says how many there are."""
    run, _ = example(5, 1, 1)
    axis = Axis.of(5, name="5 positions")
    calls = tuple(dataclasses.replace(call, queries=axis.name, keys=axis.name) for call in run.calls)
    run = dataclasses.replace(run, axes={axis.name: axis}, calls=calls)
    assert "1 head · 5 positions\n" in printed(run)


def test_the_entropy_is_a_share_of_what_is_possible():
    """As on the page; whole on a narrow terminal too."""
    run = example(8, 2, 3)[0]
    assert all(
        "entropy, % of the maximum possible\n" in re.sub(" +\n", "\n", printed(run, width)) for width in (40, 60)
    )


@pytest.mark.parametrize("width", [60, 200])
def test_no_character_is_cut(width):
    """Labels and names end between characters, and labels have equal widths."""
    run, _ = example(len(TOKENS), 1, 1, tokens=TOKENS)
    axis = dataclasses.replace(run.axes["text"], unknown=((5, "𓀀"),))
    run = dataclasses.replace(run, axes={"text": axis})
    said = printed(run, width)
    assert "𓀀 ([UNK])" in said and "⟨F0⟩⟨9F⟩" in said and "⟨F0…" not in said
    console = Console(file=io.StringIO(), width=width, force_terminal=False)
    for token, line in zip(TOKENS[:5], matrix(run, 0, 0, console).plain.splitlines(), strict=False):
        parts = characters(visible(token))
        label = line.lstrip(" ").split(" ")[0]
        assert label in {"".join(parts[:n]) + "…" for n in range(len(parts))} | {"".join(parts)}
        assert cell_len(line[: line.rindex(label) + len(label)]) <= 10


def test_numbers_on_colors_have_contrast():
    """At least 4.5:1 between the number of a head and its color, for every share."""

    def light(color) -> float:
        parts = np.array(color.get_truecolor()) / 255
        return np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4) @ (0.2126, 0.7152, 0.0722)

    ratios = []
    for share in np.linspace(0, 1, 1001):
        style = _color(float(share))
        low, high = sorted((light(style.color), light(style.bgcolor)))
        ratios.append((high + 0.05) / (low + 0.05))
    assert 4.5 <= min(ratios) < 6 and max(ratios) > 12


def test_detectors_say_of_how_many_rows():
    """A head is not judged by one row without saying so; figures of special tokens need a special token."""

    def said_of(*tokens):
        q = np.random.default_rng(0).standard_normal((1, len(tokens), 8), dtype=np.float32)
        return printed(of_arrays(q, q, q, tokens=tokens, special=[token[0] == "[" for token in tokens]))

    said = said_of(" a", " b", " c", " a", " d", " b", " e")
    assert re.search(r"the same token before \(2 rows\) +0\.0", said)
    assert re.search(r"the previous token +0\.0", said)
    assert "special tokens" not in said
    once = said_of("[CLS]", " a", " a", "[SEP]")
    assert "the same token before (1 row) " in once and "on special tokens" in once


def test_what_moves_is_named():
    """‖v‖, or ‖v W_o‖, as the values are known."""
    q = np.random.default_rng(0).standard_normal((1, 5, 8), dtype=np.float32)
    assert "moves: the key’s share of Σ p·‖v‖" in printed(of_arrays(q, q, q))
    assert "moves" not in printed(of_arrays(q, q))
