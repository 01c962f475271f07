"""The summary in the terminal: its counts, and tokens of which no character is cut."""

import dataclasses
import io
import re

import numpy as np
import pytest
from rich.console import Console

from regard.lens.look import of_arrays
from regard.lens.runs.first_view import choose
from regard.lens.terminal import summary
from tests.support.browser import example
from tests.support.engines import normal

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
