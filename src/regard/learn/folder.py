"""The learner's folder: a plain file for each exercise, and notes. Nothing of the learner's is ever overwritten."""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Container, Iterable, Iterator
from pathlib import Path

from ..common.errors import refuse
from .chapter import Chapter, Exercise, files

USUAL = Path("attention-course")  # the folder, if none is named
CELL = "# %% "  # begins a cell of such a file, as in editors that run cells


@contextlib.contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Raises Refused where the system does not let a file or folder be written."""
    try:
        yield
    except OSError as error:
        given, expected = f"{error.filename or folder}: {error.strerror}", "a folder in which you may write"
        raise refuse("learn", "it cannot be written", given, expected, "name another folder") from error


def starts(folder: Path, exercise: Exercise) -> Path:
    """The learner's file of an exercise, written if there is none."""
    return _new(folder / exercise.file_name, exercise.start)


def combined(folder: Path, chapter: Chapter) -> Path:
    """One file with all exercises of a chapter, for those who know, written if there is none."""
    return _new(folder / chapter.fast_file, starts_of_all(chapter))


def starts_of_all(chapter: Chapter) -> str:
    """What such a file holds at first: each exercise in a cell of its own."""
    parts = [f"{CELL}{each.name}\n{each.start.rstrip()}\n" for each in chapter.exercises if not each.tests_of]
    return "\n\n".join(parts)


def until_cell_ends(code: str, exercise: str) -> str:
    """The code of a file up to the end of the cell of an exercise; all of it if the file has no such cell.

    Later exercises may define a function of the same name, or import the one of this exercise.
    """
    until = re.search(rf"^{CELL} *{exercise} *$.*?(?=^{CELL}|\Z)", code, re.M | re.S)
    return code[: until.end()] if until else code


def _new(path: Path, text: str) -> Path:
    with writing(path.parent), contextlib.suppress(FileExistsError):
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path, "x", encoding="utf-8") as file:  # x: an existing file is never opened
            file.write(text)
    return path


def put_aside(folder: Path, chapter: Chapter) -> list[Path]:
    """Moves the files of a chapter into the folder `old`; the new places."""
    moved = []
    for path in (folder / name for name in files([chapter])):
        if path.exists():
            target = folder / "old" / f"{path.stem}-{time.strftime('%Y%m%d-%H%M%S')}.py"
            target.parent.mkdir(exist_ok=True)
            while target.exists():
                target = target.with_stem(f"{target.stem}-again")
            os.replace(path, target)
            moved.append(target)
    return moved


def place_in(chapter: Chapter, part: str) -> str:
    """A place in the course as it is written in notes. part: the name of a part, or "" """
    return f"chapter {chapter.number}, {chapter.title}" + (f" ({part})" if part else "")


def add_note(folder: Path, text: str, place: str) -> Path:
    """Appends a learner's own question to `notes.md`, with the place in the course where it arose."""
    path = folder / "notes.md"
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        head = "" if path.exists() else "# Questions of my own\n"
        with open(path, "a", encoding="utf-8") as file:
            file.write(f"{head}\n## {text.strip()}\n\n{place}, {time.strftime('%Y-%m-%d')}\n")
    return path


def saved(changes: Iterable[tuple[object, str]], known: Container[str]) -> Iterator[Path]:
    """The learner's files among those that changed and still exist."""
    for name in sorted({name for _, name in changes}):
        path = Path(name)
        if path.name in known and path.is_file():
            yield path
