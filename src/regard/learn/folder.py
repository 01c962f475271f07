"""The learner's folder: a plain file for each exercise, and notes. Nothing of the learner's is ever overwritten."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path

from ..common.errors import refuse
from .chapter import Chapter, Exercise, files

USUAL = Path("attention-course")  # the folder, if none is named


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
