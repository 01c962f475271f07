"""The learner's folder: a plain file for each exercise, notes, and the progress.

Nothing of the learner's is ever overwritten. `progress.json` survives a crash, and two terminals at once.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..common.errors import refuse
from ..common.files.output import lock, replacing, to_disk
from ..common.files.strict_json import Each, wrong
from .chapter import Chapter, Exercise, files

USUAL = Path("attention-course")  # the folder, if none is named


@contextlib.contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Makes a folder, to write into it inside. Raises Refused where the system does not let this be done."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        given, expected = f"{error.filename or folder}: {error.strerror}", "a folder in which you may write"
        raise refuse("learn", "it cannot be written", given, expected, "name another folder") from error


def starts(folder: Path, exercise: Exercise) -> Path:
    """The learner's file of an exercise, written if there is none."""
    path = folder / exercise.file_name
    with (
        writing(path.parent),
        contextlib.suppress(FileExistsError),
        open(path, "x", encoding="utf-8") as file,  # x: an existing file is never opened
    ):
        file.write(exercise.start)
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
        head = "" if path.exists() else "# Questions of my own\n"
        with open(path, "a", encoding="utf-8") as file:
            file.write(f"{head}\n## {text.strip()}\n\n{place}, {time.strftime('%Y-%m-%d')}\n")
    return path


NAME, LOCK, VERSION = "progress.json", ".progress.lock", 1
ANSWER = {"given": str, "right": bool, "at": str, "again": [object]}
EXERCISE = {"tries": int, "hints": int, "shown": bool, "passed": (bool, str, None)}
FORM = {
    "version": int, "own": str, "current": (int, None), "place": Each(str), "answers": Each(ANSWER),
    "exercises": Each(EXERCISE), "claims": Each(str),
}  # fmt: skip
WAIT = 10.0  # seconds for another terminal, which holds the lock for a few milliseconds


@dataclass
class Progress:
    """What was done, as plain data.

    own: the folder with a teacher's own chapters, or "" ·
    place: the name of the next part of each chapter, by the chapter's number; "" at its end · current: the chapter that
    is being read · answers: by "chapter/name": what was answered first, whether that was right, and in which chapters
    a wrong one has come back · exercises: by "chapter/name": tries, hints, whether the solution was shown, and passed ·
    claims: by "chapter/name": what was thought of it first, on a page
    """

    own: str = ""
    current: int | None = None
    place: dict[str, str] = field(default_factory=dict)
    answers: dict[str, dict[str, Any]] = field(default_factory=dict)
    exercises: dict[str, dict[str, Any]] = field(default_factory=dict)
    claims: dict[str, str] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """As types of JSON."""
        return {"version": VERSION, **vars(self)}

    def answered(self, key: str, given: str, right: bool) -> None:
        """Notes the first answer to a question. Later ones, when it comes back, are noted by `again`."""
        if key not in self.answers:
            self.answers[key] = {"given": given, "right": right, "at": _now(), "again": []}

    def again(self, key: str, chapter: int, right: bool) -> None:
        """Notes the answer to a question that came back in another chapter."""
        self.answers[key]["again"].append({"chapter": chapter, "right": right, "at": _now()})

    def exercise(self, key: str) -> dict[str, Any]:
        """What is known of an exercise."""
        return self.exercises.setdefault(key, {"tries": 0, "hints": 0, "shown": False, "passed": None})

    def passed(self, key: str) -> bool:
        """Whether an exercise was passed."""
        return bool(self.exercises.get(key, {}).get("passed"))

    def note_check(self, key: str, right: bool) -> None:
        """Notes a try of an exercise, and whether it passed."""
        noted = self.exercise(key)
        noted["tries"] += 1
        if right and not noted["passed"]:
            noted["passed"] = "shown" if noted["shown"] else True

    def note_shown(self, exercise: Exercise, fix: str) -> None:
        """Notes that the solution of an exercise was shown; raises Refused before the first try. fix: how to try"""
        noted = self.exercise(exercise.key)
        if not noted["tries"]:
            given = f"no check of {exercise.file_name} so far"
            raise refuse("learn", "the solution is shown after a try", given, "at least one", fix)
        noted["shown"] = True

    def forget(self, chapter: int) -> None:
        """Forgets a chapter."""
        self.place.pop(str(chapter), None)
        for kept in (self.answers, self.exercises, self.claims):
            for key in [key for key in kept if key.startswith(f"{chapter}/")]:
                del kept[key]


@dataclass(frozen=True)
class Predictions:
    """The predictions and questions of a chapter: how many there are, were answered, and were right at first."""

    chapter: int
    count: int
    answered: int
    right: int


def predictions(progress: Progress, chapter: Chapter) -> Predictions:
    """What a learner predicted in a chapter."""
    answers = [progress.answers.get(each.key) for each in chapter.questions]
    right = sum(bool(each and each["right"]) for each in answers)
    return Predictions(chapter.number, len(answers), sum(each is not None for each in answers), right)


def read(folder: Path) -> Progress:
    """The progress of a folder; an empty one if there is none."""
    path = folder / NAME
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        problem = "" if isinstance(data, dict) and data.get("version") == VERSION else f"it is not of version {VERSION}"
    except (FileNotFoundError, NotADirectoryError):  # a file in place of the folder: writing to it raises Refused
        return Progress()
    except (ValueError, OSError) as error:
        problem = str(error)
    if not problem:
        data = Progress().to_json() | data  # an older one has fewer entries
        problem = "; ".join(reason.given for reason in wrong(data, FORM, "it"))
    if problem:
        raise refuse(
            "learn",
            "the progress cannot be read",
            f"{path}: {problem}",
            f"the file that regard learn wrote, of version {VERSION}",
            "correct it, or move it away: the exercises stay, and the course begins anew",
        )
    return Progress(**{name: data[name] for name in vars(Progress())})


@contextlib.contextmanager
def changing(folder: Path) -> Iterator[Progress]:
    """The progress, to be changed inside; written at the end as a whole, while no other process changes it."""
    with writing(folder), _locked(folder / LOCK):
        progress = read(folder)
        yield progress
        with replacing("learn", "progress:", folder / NAME) as draft:
            draft.write_text(json.dumps(progress.to_json(), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
            to_disk(draft)


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Holds a lock that the system gives back when a process ends, however it ends."""
    until = time.monotonic() + WAIT
    with open(path, "a+b") as file:
        while not lock(file.fileno()):
            if time.monotonic() > until:
                raise refuse(
                    "learn",
                    "another regard learn is writing the progress",
                    str(path),
                    f"the lock within {WAIT:g} s",
                    "end the other one, and try again",
                )
            time.sleep(0.01)
        yield


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S")
