"""Characters as readers see them: cut where no letter, emoji or flag is cut; numbers with their nouns."""

import itertools
import unicodedata

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from regard.common.text.characters import characters, clipped, fitting
from regard.common.text.units import counted
from regard.lens import Axis
from regard.lens.runs.axis import named
from regard.lens.runs.labels import visible

# Each is one character to a reader.
WHOLE = [
    "a",
    "e\u0301",
    "שִׁ",
    "بَّ",
    "நி",
    "각",
    "👩🏽\u200d🚀",
    "👨\u200d👩\u200d👧\u200d👦",
    "🏳\ufe0f\u200d🌈",
    "❤\ufe0f",
    "1\ufe0f\u20e3",
    "🇫🇷",
    "⟨U+200D⟩",
    "⟨F0⟩",
    " ",
    "日",
]


def test_a_text_is_cut_between_characters():
    """Each of the list alone, and all of them behind each other."""
    assert [characters(each) for each in WHOLE] == [[each] for each in WHOLE]
    assert characters("".join(WHOLE)) == WHOLE


@given(st.lists(st.sampled_from(WHOLE), max_size=12), st.integers(1, 14))
def test_clipping_keeps_characters_whole(parts, most):
    """The result has at most so many characters, and ends where one ends."""
    text = "".join(parts)
    cut = characters(text)
    shown = clipped(text, most)
    assert shown == (text if len(cut) <= most else "".join(cut[: most - 1]) + "…")
    narrow = fitting(text, most, len)
    assert narrow == text if len(text) <= most else len(narrow) <= most
    assert narrow == text or (
        text.startswith(narrow[:-1]) and narrow[:-1] in {"".join(cut[:n]) for n in range(len(cut))}
    )


@given(st.text(max_size=40))
@example("\x1f\u0301a\u102b")
def test_nothing_is_lost_between_characters(text):
    """The parts of any text are the text, and none begins with a mark unless what is before takes none: a control
    character, a code.
    """
    parts = characters(text)
    assert "".join(parts) == text and all(parts)
    for before, part in itertools.pairwise(parts):
        alone = before[-1] in " ⟩" or not before[-1].isprintable()
        assert unicodedata.category(part[0]) not in ("Mn", "Me") or alone


@pytest.mark.parametrize("text", [each for each in WHOLE if each != " "])
def test_whole_characters_are_shown_as_they_are(text):
    """Joiners, selectors and tags that make a character are kept; as they are no part of one, they are codes."""
    assert visible(text) == text


def test_joiners_between_other_letters_are_shown():
    """Where they would be invisible; between Arabic letters and after a virama they change how letters look."""
    assert visible("a\u200db") == "a⟨U+200D⟩b" and visible("a\u200cb") == "a⟨U+200C⟩b"
    assert visible("می\u200cخواهم") == "می\u200cخواهم" and visible("क्\u200dष") == "क्\u200dष"
    assert visible("می\u200c") == "می⟨U+200C⟩" and visible("\u200d") == "⟨U+200D⟩"
    assert visible("a\ufe0f") == "a⟨U+FE0F⟩"


def test_a_mark_without_its_letter_has_a_base():
    """A dotted circle, or for Arabic the line that joins letters."""
    assert visible("\u0301") == "◌\u0301" and visible(" \u093f") == "◌\u093f" and visible("\u064e") == "\u0640\u064e"
    assert visible("e\u0301") == "e\u0301"


def test_an_unknown_token_is_named_by_its_letters():
    """And by what the model saw."""
    axis = Axis("text", ("a", " [UNK]", "\u200d"), (False,) * 3, unknown=((1, "e\u0301 𓀀"),))
    assert [named(axis, i) for i in range(3)] == ["a", "e\u0301␣𓀀 ([UNK])", "⟨U+200D⟩"]


def test_a_number_has_its_noun():
    """Only 1 is singular."""
    assert [counted(count, "head") for count in (0, 1, 2, 1234)] == ["0 heads", "1 head", "2 heads", "1234 heads"]
    assert counted(1, "patch", "patches") == "1 patch" and counted(3, "patch", "patches") == "3 patches"
