"""Whether a string is a text or the path of a file: one rule for `look` and for the commands."""

from __future__ import annotations

import re
from pathlib import Path

from ..common.errors import refuse

BEGINS = r"(\.{0,2}|~)/"
PATH = rf"{BEGINS}\S*|\S+\.(txt|md|json|html|csv|py|png|jpe?g|webp|bmp|gif)"


def is_path(word: str, where: str = "look") -> bool:
    """Whether a string is the path of a file, or resembles a path more than a text.

    Refused: a string that begins like a path, contains spaces, and is not the path of a file.

    >>> is_path("./notes"), is_path("notes.txt"), is_path("cat.png"), is_path("and/or"), is_path("What is in cat.png?")
    (True, True, True, False, False)
    """
    if exists(word) or re.fullmatch(PATH, word):
        return True
    if re.fullmatch(rf"{BEGINS}\S.*", word):
        raise refuse(
            where,
            "a text or a path",
            f"{word[:80]!r}, which begins like a path and is not an existing file or folder",
            "an existing path, or a text that does not begin like one",
            "check the path; pass such a text through standard input: -, or in Python as look(None, text)",
        )
    return False


def is_text(word: str) -> bool:
    """Whether a string in the place of a model is a text: it contains spaces and is not a path.

    >>> is_text("a text"), is_text("gpt2"), is_text("./model")
    (True, False, False)
    """
    return len(word.split()) > 1 and not is_path(word)


def exists(word: str) -> bool:
    """Whether a string is the path of an existing file or folder."""
    try:
        return bool(word.strip()) and Path(word).expanduser().exists()
    except (OSError, ValueError, RuntimeError):  # too long for a path, with a NUL character, or an unknown ~user
        return False
