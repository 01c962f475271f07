"""Characters as readers see them: a base with its marks, an emoji of several parts, a flag of two characters."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable

ZWNJ, ZWJ = "\u200c", "\u200d"
SELECTORS = "\ufe0e\ufe0f"  # choose the text form or the emoji form of the character before
TONES = "".join(map(chr, range(0x1F3FB, 0x1F400)))  # of skin
NEAR = 8  # characters: where the base of a joiner is searched, behind its marks
VIRAMA = 9  # the combining class of the marks that join Indic consonants
KEYCAPS = set("#*0123456789")
SIGNS = set("‼⁉〰")  # pictographs that are neither symbols nor mathematics
CODE = re.compile(r"(⟨(?:U\+[0-9A-F]{4,6}|[0-9A-F]{2})⟩)")  # a character or byte written as its number


def joins(text: str, at: int) -> bool:
    """Whether an invisible character is needed to show the characters around it.

    >>> joins("👩\u200d🚀", 1), joins("a\u200db", 1)
    (True, False)
    """
    before, after = text[at - 1 : at], text[at + 1 : at + 2]
    near = text[max(0, at - NEAR) : at]
    if text[at] in SELECTORS:
        return _pictograph(before) or (before in KEYCAPS and after == "\u20e3")
    if text[at] == ZWJ:
        base = near.rstrip(SELECTORS + TONES)[-1:]
        return _virama(before) or (_pictograph(base) and _pictograph(after))
    base = near.rstrip("".join(filter(_mark, near)))[-1:]
    return text[at] == ZWNJ and (_virama(before) or (_arabic(base) and _arabic(after)))


def characters(text: str) -> list[str]:
    """The text cut between characters as readers see them: the grapheme clusters of Unicode Standard Annex 29.

    >>> [len(each) for each in characters("e\u0301👩🏽\u200d🚀🇫🇷")]
    [2, 4, 2]
    """
    if text.isascii():
        return list(text)
    from wcwidth import iter_graphemes  # few texts need its tables

    between = CODE.split(text)
    return [each for at, part in enumerate(between) for each in ([part] if at % 2 else iter_graphemes(part))]


def clipped(text: str, most: int) -> str:
    """The text, cut to at most so many characters, the last of which is then “…”.

    >>> clipped("abcdef", 4), clipped("👩\u200d🚀👩\u200d🚀", 2)
    ('abc…', '👩\u200d🚀👩\u200d🚀')
    """
    if len(text) <= most:
        return text
    cut = characters(text)
    return text if len(cut) <= most else "".join(cut[: most - 1]) + "…"


def fitting(text: str, room: int, width: Callable[[str], int]) -> str:
    """The text, cut to at most `room` columns, the last of which is then “…”; width(text) counts columns.

    >>> fitting("tiredness", 6, len)
    'tired…'
    """
    if width(text) <= room:
        return text
    kept = ""
    for each in characters(text):
        if width(kept + each) > room - 1:
            break
        kept += each
    return kept + "…"


def _mark(character: str) -> bool:
    return unicodedata.category(character) in ("Mn", "Me", "Mc")


def _virama(character: str) -> bool:
    return character != "" and unicodedata.combining(character) == VIRAMA


def _pictograph(character: str) -> bool:
    if character == "":
        return False
    new = 0x1F000 <= ord(character) < 0x1FB00  # emoji that are newer than this Python
    return new or unicodedata.category(character) in ("So", "Sm") or character in SIGNS


def _arabic(character: str) -> bool:
    """Whether it is a character of Arabic, Syriac or a related script, whose characters join."""
    return character != "" and unicodedata.bidirectional(character) == "AL"
