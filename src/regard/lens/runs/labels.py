"""Token text made visible: whitespace, control and direction characters become symbols that have no effect on the page
or the terminal.
"""

from __future__ import annotations

import unicodedata

from ...common.text.characters import joins
from ...common.text.units import counted

SIGNS = {" ": "␣", "\n": "⏎", "\t": "⇥", "\r": "␍"}
# Categories without a visible glyph: control, format (joiners, directions), separator, surrogate, private use and
# unassigned characters.
UNSEEN = {"Cc", "Cf", "Cs", "Co", "Cn", "Zs", "Zl", "Zp"}
LOST = "\ufffd"  # replaces bytes that are not a character; it is written as its number
# Other characters without a visible glyph: variation selectors, joiners, fillers, vowels and blanks. Source: Unicode,
# Default_Ignorable_Code_Point.
INKLESS = {
    *range(0xFE00, 0xFE10),
    *range(0xE0100, 0xE01F0),
    *range(0x180B, 0x1810),
    0x034F,
    0x115F,
    0x1160,
    0x17B4,
    0x17B5,
    0x2800,
    0x3164,
    0xFFA0,
    0x16FE4,
    0x1D159,
}
MARKS = 4  # the most combining marks on one character; no language needs more


def visible(token: str, edge: str = "") -> str:
    """The token with all characters visible. `edge` replaces a leading space, which is dropped by default.

    >>> visible(" the"), visible("a\\tb\\u202e"), visible(" "), visible("")
    ('the', 'a⇥b⟨U+202E⟩', '␣', '∅')
    """
    if not token:
        return "∅"
    if token[0] == " " and token[1:2].strip(" "):
        return edge + _shown(token[1:])
    return _shown(token)


def words(text: str) -> str:
    """A text with all characters visible; its spaces stay spaces.

    >>> words("a  b\u202e")
    'a  b⟨U+202E⟩'
    """
    return " ".join(visible(word) if word else "" for word in text.split(" "))


def size(name: str, count: int) -> str:
    """The size of an axis in words; the name of an axis of plain positions already contains its size.

    >>> size("text", 12), size("patches", 16), size("64 positions", 64)
    ('12 tokens', '16 patches', '64 positions')
    """
    if name == "text":
        return counted(count, "token")
    return words(name) if name.startswith(f"{count} ") else f"{count} {words(name)}"


def _shown(text: str) -> str:
    if text.isascii() and text.isalnum():
        return text
    found, marks = [], 0
    for at, character in enumerate(text):
        kind = unicodedata.category(character)
        marks = marks + 1 if kind in ("Mn", "Me") else 0
        unseen = (kind in UNSEEN or ord(character) in INKLESS) and not joins(text, at)
        if character in SIGNS:
            found.append(SIGNS[character])
        elif ord(character) < 0x20:
            found.append(chr(0x2400 + ord(character)))
        elif unseen or marks > MARKS or character == LOST:
            found.append(f"⟨U+{ord(character):04X}⟩")
        elif at == 0 and kind in ("Mn", "Mc", "Me"):
            found.append(_base(character) + character)
        else:
            found.append(character)
    return "".join(found)


def _base(mark: str) -> str:
    """What a mark is drawn on if its base is in the token before: a dotted circle; for Arabic a line, which joins."""
    return "\u0640" if unicodedata.name(mark, "").startswith("ARABIC") else "\u25cc"
