"""The teacher's side of the course: the grades of learners' folders, as tables, JSON and CSV."""

from __future__ import annotations

import ast
import contextlib
import csv
import io
import os
import shutil
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ..common.errors import Refused, refuse
from ..common.text.units import counted
from .chapter import Chapter, Exercise, files
from .checking.check import checked
from .checking.problem import Problem
from .folder import NAME, Predictions, Progress, predictions, read
from .running import installed

FILES = "[0-9][0-9]_*.py"  # names of a learner's files
PASSED, WRONG, NOT_BEGUN, NOT_CHECKED = "passed", "not right", "not begun", "not checked"


@dataclass(frozen=True)
class Grade:
    """One exercise of one learner.

    result: "passed", "not right", "not begun" (no file, or one as it was at first) or "not checked" (a package is not
    installed, or the exercise itself cannot be run) · mistakes: names of the known mistakes that explain what is wrong
    · problem: what is wrong, in a sentence · tries, hints: how often it was checked and a hint was shown · shown:
    whether the solution was shown before it passed · is_solution: whether the file equals the course's solution, which
    was not shown; short ones do
    """

    chapter: int
    exercise: str
    result: str = NOT_BEGUN
    mistakes: tuple[str, ...] = ()
    problem: str = ""
    tries: int = 0
    hints: int = 0
    shown: bool = False
    is_solution: bool = False


@dataclass(frozen=True)
class Learner:
    """One folder. problem: what could not be read of it, or is not what a learner's folder has, or "" """

    name: str
    folder: Path
    grades: tuple[Grade, ...]
    predictions: tuple[Predictions, ...]
    problem: str = ""

    @property
    def passed(self) -> int:
        """How many exercises are right."""
        return sum(grade.result == PASSED for grade in self.grades)


def grades(
    folders: Sequence[Path],
    chapters: Sequence[Chapter],
    update: Callable[[int], object] = lambda done: None,
    course: Sequence[Chapter] = (),
) -> list[Learner]:
    """The grades of folders, in their order. Copies of the files are run in processes of their own: the folders are not
    changed.

    update: is called with the number of exercises that are graded · course: all chapters, if only some
    of them are graded. Raises Refused, with all reasons, if a folder does not exist.
    """
    missing = [f"{each} is a file" if each.exists() else str(each) for each in folders if not each.is_dir()]
    if missing or not folders:
        given, fix = ", ".join(missing) or "no folder", "regard learn --grade class/*/"
        raise refuse("learn", "nothing to grade", given, "learners' folders", fix)
    known = files([*course, *chapters])
    notes = [_noted(folder, known) for folder in folders]
    every = [
        (folder, progress, chapter, exercise)
        for folder, (progress, _) in zip(folders, notes)
        for chapter in chapters
        for exercise in chapter.exercises
    ]
    found: list[Grade] = []
    with ThreadPoolExecutor(os.cpu_count()) as pool:  # each check waits for a process
        for grade in pool.map(_grade, *zip(*every)):
            found.append(grade)
            update(len(found))
    count, graded = len(every) // len(folders), iter(found)
    return [
        Learner(
            name,
            folder,
            tuple(islice(graded, count)),
            tuple(predictions(progress, chapter) for chapter in chapters),
            problem,
        )
        for name, folder, (progress, problem) in zip(_names(folders), folders, notes)
    ]


def _noted(folder: Path, known: Collection[str]) -> tuple[Progress, str]:
    """The progress of a folder, and what is strange about it; without one that can be read, an empty one and the
    reason. known: files of a course
    """
    try:
        return read(folder), _strange(folder, known)
    except Refused as refused:
        return Progress(), f"{refused.reasons[0].what}: {refused.reasons[0].given}"


def _strange(folder: Path, known: Collection[str]) -> str:
    """Why a folder may not be the one that is meant: its files have other names, or are one level below."""
    there = sorted(path.name for path in folder.glob(FILES))
    unknown = [name for name in there if name not in known]
    if unknown:
        return f"no exercise has the name of {', '.join(unknown)}; own chapters are named with --chapters"
    if there or (folder / NAME).exists():
        return ""
    below = sorted({path.parent.name for path in folder.glob(f"*/{FILES}")})
    if not below:
        return "no file of the course is in this folder"
    return f"no file of the course is in this folder; there are some in {', '.join(below)}"


def _grade(folder: Path, progress: Progress, chapter: Chapter, exercise: Exercise) -> Grade:
    noted = progress.exercise(exercise.key)
    begun = Grade(chapter.number, exercise.name, tries=noted["tries"], hints=noted["hints"], shown=noted["shown"])
    path = folder / exercise.file_name
    try:
        code = path.read_bytes()
    except FileNotFoundError:
        return begun
    except OSError as error:
        return replace(begun, result=WRONG, problem=f"{path.name} cannot be read: {error.strerror}")
    if code.split() == exercise.start.encode().split():
        return begun
    if installed(exercise.needs):
        return replace(begun, result=NOT_CHECKED, problem=f"it needs {installed(exercise.needs)}")
    problem = _checked(chapter, exercise, path)
    if problem is None:
        copied = not begun.shown and _same_code(code, exercise.solution)
        return replace(begun, result=PASSED, is_solution=copied)
    if problem.kind == "chapter":
        return replace(begun, result=NOT_CHECKED, problem=problem.what)
    return replace(begun, result=WRONG, mistakes=problem.mistakes, problem=problem.what)


def _checked(chapter: Chapter, exercise: Exercise, path: Path) -> Problem | None:
    """What is wrong with a file. A copy of it is run, among copies of the Python files beside it, which it may import:
    code that deletes or overwrites what is around it does so there.
    """
    with TemporaryDirectory(prefix="regard-", ignore_cleanup_errors=True) as name:
        copies = Path(name)
        for each in path.parent.glob("*.py"):
            with contextlib.suppress(OSError):  # of the others; the one that is checked has been read
                if each.is_file():
                    shutil.copyfile(each, copies / each.name)
        try:
            return checked(chapter, exercise, copies / path.name, copies).problem
        except Refused as refused:  # this system cannot check
            return Problem("chapter", "; ".join(reason.what for reason in refused.reasons))


def _same_code(code: bytes, solution: str) -> bool:
    """Whether two programs are equal, comments, blank lines and doc strings left out."""
    try:
        return _plain(code.decode()) == _plain(solution)
    except (SyntaxError, ValueError):
        return False


def _plain(code: str) -> str:
    tree = ast.parse(code)
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and ast.get_docstring(node):
            del node.body[0]
    return ast.dump(tree)


def _names(folders: Sequence[Path]) -> list[str]:
    """What distinguishes the folders: their paths without the parts that all have, at the beginning and at the end."""
    parts = [list(folder.resolve().parts) for folder in folders]
    if len({*map(tuple, parts)}) < len(parts):
        return [str(folder) for folder in folders]
    for end in (0, -1):
        while min(map(len, parts)) > 1 and len({each[end] for each in parts}) == 1:
            for each in parts:
                each.pop(end)
    return ["/".join(each) for each in parts]


COLUMNS = ("learner", *Grade.__dataclass_fields__, "questions_right", "questions_answered", "questions")


def of_chapters(learners: Sequence[Learner]) -> Iterator[tuple[int, list[list[str]]]]:
    """For each chapter its number, and rows: the exercises, and for each learner what came of them."""
    for at, number in enumerate(each.chapter for each in learners[0].predictions):
        names = [grade.exercise for grade in learners[0].grades if grade.chapter == number]
        rows = [["", *names, "questions right"]]
        for learner in learners:
            own = learner.predictions[at]
            cells = [_cell(grade) for grade in learner.grades if grade.chapter == number]
            rows.append([learner.name, *cells, f"{own.right} of {own.count}" if own.answered else "–"])
        yield number, rows


def _cell(grade: Grade) -> str:
    """What came of an exercise, in a few words."""
    if grade.result == NOT_BEGUN and not grade.tries:
        return "–"
    words = [" + ".join(grade.mistakes) or grade.result]
    if grade.is_solution:
        words.append("equals the solution")
    if grade.shown and grade.result != NOT_BEGUN:
        words.append("solution shown")
    if grade.tries:
        words.append(counted(grade.tries, "try", "tries"))
    return ", ".join(words)


def summary(learners: Sequence[Learner]) -> list[list[str]]:
    """A row for each learner: exercises that are right, those of them whose solution was shown, and questions."""
    rows = [["", "passed", "solution shown", "questions right"]]
    for learner in learners:
        shown = sum(grade.result == PASSED and grade.shown for grade in learner.grades)
        right, count = (sum(getattr(each, name) for each in learner.predictions) for name in ("right", "count"))
        passed = f"{learner.passed} of {len(learner.grades)}"
        rows.append([learner.name, passed, str(shown), f"{right} of {count}"])
    return rows


def as_csv(learners: Sequence[Learner]) -> str:
    """A row for each learner and exercise, with the questions of its chapter; RFC 4180, with a heading."""
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\r\n")
    writer.writeheader()
    for learner in learners:
        counts = {each.chapter: each for each in learner.predictions}
        for grade in learner.grades:
            row: dict[str, Any] = {"learner": learner.name, **asdict(grade), "mistakes": "+".join(grade.mistakes)}
            own = counts[grade.chapter]
            row |= {"questions_right": own.right, "questions_answered": own.answered, "questions": own.count}
            writer.writerow({name: _plain_text(value) for name, value in row.items()})
    return text.getvalue()


def _plain_text(value: Any) -> Any:
    """Text that a spreadsheet would take for a formula begins with an apostrophe."""
    return f"'{value}" if isinstance(value, str) and value.startswith(("=", "+", "-", "@", "\t", "\r")) else value


def as_data(learners: Sequence[Learner]) -> list[dict[str, Any]]:
    """A list of learners, each with its grades and the counts of its questions, to be written as JSON."""
    return [{**asdict(learner), "folder": str(learner.folder), "passed": learner.passed} for learner in learners]
