"""The texts of `detect_heads`: strings, files, or pairs of a name and a text; files are read one at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from ...common.errors import refuse

NAMED = 60  # characters of a text that are its name


def named(texts: Iterable[Any]) -> Iterator[tuple[str, Callable[[], str]]]:
    """The name of each text, and how to get it, so that files are read one at a time."""
    for number, entry in enumerate(texts):
        if isinstance(entry, Path):
            yield str(entry), partial(read_file, entry)
        elif isinstance(entry, str):
            name = " ".join(entry.split())
            yield name if len(name) <= NAMED else f"{name[:NAMED]}…", partial(str, entry)
        elif isinstance(entry, tuple) and len(entry) == 2 and all(isinstance(part, str) for part in entry):
            yield entry[0], partial(str, entry[1])
        else:
            yield f"text {number}", partial(_not_a_text, entry)


def _not_a_text(entry: Any) -> str:
    expected = "a text, a path, or a pair of a name and a text"
    raise refuse("detect_heads", "not a text", f"{entry!r:.60}", expected, "pass the text itself")


def read_file(path: Path) -> str:
    """The text of a UTF-8 file. Refused: a file that cannot be read, is not UTF-8, or is empty."""
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        what, given, fix = "the file cannot be read", error.strerror or str(error), "check the path and its permissions"
    except UnicodeDecodeError as error:
        what, given, fix = "the file is not UTF-8", f"byte {error.start}", "convert it to UTF-8, for example with iconv"
    else:
        if text.strip():
            return text
        what, given, fix = "the file is empty", "no words", "leave it out"
    raise refuse("detect_heads", what, f"{path}: {given}", "a text file", fix)
