"""Token text made visible: whitespace, control and direction marks become signs that cannot act on the page or
terminal.
"""

from __future__ import annotations

import unicodedata

__all__ = ["visible", "words"]

SIGNS = {" ": "␣", "\n": "⏎", "\t": "⇥", "\r": "␍"}
# Controls, format marks (joiners, directions), separators, surrogates, private and unassigned letters have no picture …
UNSEEN = {"Cc", "Cf", "Cs", "Co", "Cn", "Zs", "Zl", "Zp"}
# … nor have these: variation selectors, and joiners, fillers, vowels and blanks without ink. Source: Unicode,
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
MARKS = 4  # on one letter: more than any language writes


def visible(token: str, edge: str = "") -> str:
    """The token with nothing hidden in it. `edge` is what a leading space is written as; by default it is left out.

    >>> visible(" the"), visible("a\\tb\\u202e"), visible(" "), visible("")
    ('the', 'a⇥b⟨U+202E⟩', '␣', '∅')
    """
    if not token:
        return "∅"
    if token[0] == " " and token[1:2].strip(" "):
        return edge + _shown(token[1:])
    return _shown(token)


def words(text: str) -> str:
    """A text in which nothing is hidden, its spaces as spaces.

    >>> words("a  b\u202e")
    'a  b⟨U+202E⟩'
    """
    return " ".join(visible(word) if word else "" for word in text.split(" "))


def _shown(text: str) -> str:
    if text.isascii() and text.isalnum():
        return text
    found, marks = [], 0
    for letter in text:
        kind = unicodedata.category(letter)
        marks = marks + 1 if kind in ("Mn", "Me") else 0
        if letter in SIGNS:
            found.append(SIGNS[letter])
        elif ord(letter) < 0x20:
            found.append(chr(0x2400 + ord(letter)))
        elif kind in UNSEEN or ord(letter) in INKLESS or marks > MARKS:
            found.append(f"⟨U+{ord(letter):04X}⟩")
        else:
            found.append(letter)
    return "".join(found)
