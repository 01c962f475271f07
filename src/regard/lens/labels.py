"""Token text made visible: whitespace, control and direction marks become signs that cannot act on the page or terminal."""

from __future__ import annotations

import unicodedata

__all__ = ["visible", "words"]

SIGNS = {" ": "␣", "\n": "⏎", "\t": "⇥", "\r": "␍"}


def visible(token: str, edge: str = "") -> str:
    """The token with nothing hidden in it. `edge` is what a leading space is written as; by default it is left out.

    >>> visible(" the"), visible("a\\tb\\u202e"), visible(" "), visible("")
    ('the', 'a⇥b⟨U+202E⟩', '␣', '∅')
    """
    if not token:
        return "∅"
    if token[0] == " " and token[1:2].strip(" "):
        return edge + "".join(map(_sign, token[1:]))
    return "".join(map(_sign, token))


def words(text: str) -> str:
    """A text in which nothing is hidden, its spaces as spaces.

    >>> words("a  b\u202e")
    'a  b⟨U+202E⟩'
    """
    return " ".join(visible(word) if word else "" for word in text.split(" "))


def _sign(letter: str) -> str:
    if letter in SIGNS:
        return SIGNS[letter]
    if ord(letter) < 0x20:
        return chr(0x2400 + ord(letter))
    # Controls, format marks (joiners, directions), separators, surrogates, private and unassigned letters have no picture.
    if unicodedata.category(letter) in ("Cc", "Cf", "Cs", "Co", "Cn", "Zs", "Zl", "Zp"):
        return f"⟨U+{ord(letter):04X}⟩"
    return letter
