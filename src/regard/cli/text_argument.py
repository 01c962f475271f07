"""The text argument of `regard look` and `regard audit`: a text, a text file, or - for standard input."""

from __future__ import annotations

import sys
from pathlib import Path

from ..common.errors import refuse
from ..lens.text_or_path import is_path


def read_text(command: str, word: str | None) -> str:
    """The text: an argument, the content of a file, or standard input."""
    if word is None and sys.stdin.isatty():
        raise refuse(command, "no text", "no argument", "a text", "pass a text in quotes, or a text file")
    path = Path(word or "-").expanduser()
    if word is None or word == "-":
        raw, source = sys.stdin.buffer.read(), "standard input"
    elif is_path(word, command):
        try:
            raw, source = path.read_bytes(), word
        except OSError as error:
            fix = (
                "pass a text after the model folder"
                if path.is_dir()
                else "check the path; pass a text that resembles a path through standard input: -"
            )
            raise refuse(
                command, "the file cannot be read", f"{word}: {error.strerror}", "a text file, or a text", fix
            ) from error
    else:
        raw, source = word.encode("utf-8", "surrogateescape"), "the argument"
    try:
        words = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise refuse(
            command,
            "the text is not UTF-8",
            f"byte {error.start} of {source}",
            "UTF-8",
            "convert it to UTF-8, for example with iconv",
        ) from error
    if not words.strip():
        raise refuse(command, "no text", f"{source} contains no words", "a text", "pass some words")
    return words
