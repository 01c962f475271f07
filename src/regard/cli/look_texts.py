"""`regard look` over many texts: the detectors of every head, as tables or as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ..common.errors import Reason, Refused, refuse
from ..language.expr import Expr
from ..lens.storage.reader import is_run
from ..lens.text_or_path import exists
from ..lens.trained import is_trained
from .arguments import read_text

TEXTS = "*.txt"  # the files of a folder that are texts
USED = ("--measure", "--layers", "--limit", "--lines", "--json")  # the options that many texts have


class Several(NamedTuple):
    """A model (None: the default model), and many texts: paths, or pairs of a name and a text."""

    model: str | None
    texts: Sequence[Path | tuple[str, str]]


def several(words: Sequence[str], lines: bool, as_json: bool) -> Several | None:
    """The model and the texts of the arguments; None if they are one text that is to be shown on a page.

    Many texts are: several files, a folder of .txt files, and the lines of a file with --lines; with --json, one text,
    too. Refused: files that do not exist, all at once.
    """
    if words and is_run(words[0]):
        if lines or as_json:
            option = "--lines" if lines else "--json"
            raise refuse(
                "look",
                f"{option} has no effect on a recorded run",
                f"{option} and the recorded run {words[0]}",
                "a model and texts",
                f"omit {option}",
            )
        return None
    model, rest = _split(words)
    if lines:
        if len(rest) > 1 or (rest and Path(rest[0]).is_dir()):
            raise refuse(
                "look",
                "--lines reads one file",
                " ".join(rest),
                "one file with a text on each line, or - for standard input",
                "omit --lines: every file is then one text",
            )
        return Several(model, _lines(rest[0] if rest else None))
    if (len(rest) > 1 and any(map(exists, rest))) or any(map(_has_texts, rest)):
        _check_files(rest)
        paths = [path for word in rest for path in _paths(Path(word).expanduser())]
        return Several(model, paths)
    if as_json and not rest and model is not None:
        raise refuse(
            "look",
            "--json needs a text",
            f"--json and the model {model}",
            "a text, text files, or a folder of .txt files after the model",
            f'pass a text: regard look {model} "…" --json',
        )
    if as_json and len(rest) <= 1:
        text = read_text("look", rest[0] if rest else None)
        name = rest[0] if rest and exists(rest[0]) else " ".join(text.split())[:60]
        return Several(model, [(name, text)])
    return None


def detect(
    given: Several,
    measures: Mapping[str, Expr],
    layers: Sequence[int | str] | None,
    limit: int | str,
    *,
    as_json: bool,
) -> None:
    """Runs the model on one text after another, and prints what every head does."""
    from ..lens.detection import detect_heads
    from ..lens.drawing.terminal import head_table
    from .terminal import Console, emit_json

    with Console(stderr=True).status("running the model") as status:

        def counted() -> Iterator[Path | tuple[str, str]]:
            for number, text in enumerate(given.texts, 1):
                status.update(f"text {number} of {len(given.texts)}")
                yield text

        found = detect_heads(given.model, counted(), measures=measures, layers=layers, limit=limit)
    if as_json:
        emit_json(found.to_json())
    else:
        head_table(Console(), found)


def check_unused(options: Mapping[str, Any]) -> None:
    """Refuses options of a page or of a single run, all at once."""
    reasons = [
        Reason(
            f"{name} has no effect on the detectors of many texts",
            name if value is True else f"{name} {value}",
            ", ".join(USED[:-1]) + f" and {USED[-1]}",
            f"omit {name}, or pass one text without --json",
        )
        for name, value in options.items()
        if name not in USED
    ]
    if reasons:
        raise Refused("look", reasons)


def _split(words: Sequence[str]) -> tuple[str | None, Sequence[str]]:
    """The model and the texts. The first word is the model unless it is a text file or a folder of texts, or alone."""
    if not words:
        return None, ()
    first = Path(words[0]).expanduser()
    is_text = exists(words[0]) and (first.is_file() or _has_texts(words[0])) and not is_trained(words[0])
    alone = len(words) == 1 and not is_trained(words[0])
    return (None, words) if is_text or alone else (words[0], words[1:])


def _has_texts(word: str) -> bool:
    """Whether a word is a folder of .txt files, and not a model or a recorded run, which may contain such files."""
    folder = Path(word).expanduser()
    if not exists(word) or not folder.is_dir() or is_run(word) or is_trained(word):
        return False
    return not (folder / "config.json").exists() and any(folder.glob(TEXTS))


def _paths(path: Path) -> list[Path]:
    return sorted(path.glob(TEXTS)) if path.is_dir() else [path]


def _check_files(words: Sequence[str]) -> None:
    """Refuses words that are not text files or folders of text files, all at once."""
    reasons = [
        Reason(
            "not a text file",
            f"{word}: {'a folder without .txt files' if exists(word) else 'no such file'}",
            "text files, or folders of .txt files",
            "check the path; put a text in quotes to show it alone",
        )
        for word in words
        if not exists(word) or (Path(word).expanduser().is_dir() and not _has_texts(word))
    ]
    if reasons:
        raise Refused("look", reasons)


def _lines(word: str | None) -> list[tuple[str, str]]:
    """The lines of a file that are not blank, each with the name of the file and its number."""
    lines = read_text("look", word).split("\n")
    name = "line " if word in (None, "-") else f"{word}:"
    return [(f"{name}{number}", line.rstrip("\r")) for number, line in enumerate(lines, 1) if line.strip()]
