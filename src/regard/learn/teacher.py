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
from dataclasses import asdict, dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ..common.errors import Reason, Refused
from .chapter import Chapter, Exercise, key_of
from .checking.check import check
from .checking.problem import Problem
from .folder import FAST, starts_of_all
from .progress import NAME, Progress, read
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
class Predictions:
    """The predictions and questions of a chapter: how many there are, were answered, and were right at first."""

    chapter: int
    count: int
    answered: int
    right: int


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


@dataclass
class _Work:
    """A folder while it is graded."""

    folder: Path
    progress: Progress = field(default_factory=Progress)
    problem: str = ""


def grades(
    folders: Sequence[Path],
    chapters: Sequence[Chapter],
    update: Callable[[int, int], None] = lambda done, of: None,
    course: Sequence[Chapter] = (),
) -> list[Learner]:
    """The grades of folders, in their order. Copies of the files are run in processes of their own: the folders are not
    changed.

    update: is called with the number of exercises that are graded, and that of all · course: all chapters, if only some
    of them are graded. Raises Refused, with all reasons, if a folder does not exist.
    """
    missing = [f"{each} is a file" if each.exists() else str(each) for each in folders if not each.is_dir()]
    if missing or not folders:
        given, fix = ", ".join(missing) or "no folder", "regard learn --grade class/*/"
        raise Refused("learn", [Reason("nothing to grade", given, "learners' folders", fix)])
    known = {name for chapter in [*course, *chapters] for name in _names_of_files(chapter)}
    work = [of_folder(folder, known) for folder in folders]
    every = [(each, chapter, exercise) for each in work for chapter in chapters for exercise in chapter.exercises]
    found: list[Grade] = []
    with ThreadPoolExecutor(os.cpu_count()) as pool:  # each check waits for a process
        for grade in pool.map(lambda each: _grade(*each), every):
            found.append(grade)
            update(len(found), len(every))
    count = len(every) // len(work)
    return [
        Learner(
            name,
            each.folder,
            tuple(found[at * count : (at + 1) * count]),
            tuple(_predictions(each.progress, chapter) for chapter in chapters),
            each.problem,
        )
        for at, (name, each) in enumerate(zip(_names(folders), work))
    ]


def of_folder(folder: Path, known: Collection[str]) -> _Work:
    """A folder and its progress; without one that can be read, an empty one and the reason. known: files of a course"""
    problem = _strange(folder, known)
    try:
        return _Work(folder, read(folder), problem)
    except Refused as refused:
        return _Work(folder, problem=f"{refused.reasons[0].what}: {refused.reasons[0].given}")


def _strange(folder: Path, known: Collection[str]) -> str:
    """Why a folder may not be the one that is meant: its files have other names, or are one level below."""
    files = sorted(path.name for path in folder.glob(FILES))
    unknown = [name for name in files if name not in known]
    if unknown:
        return f"no exercise has the name of {', '.join(unknown)}; own chapters are named with --chapters"
    if files or (folder / NAME).exists():
        return ""
    below = sorted({path.parent.name for path in folder.glob(f"*/{FILES}")})
    if not below:
        return "no file of the course is in this folder"
    others = f" and {len(below) - 1} more" if len(below) > 1 else ""
    return f"no file of the course is in this folder; there are some in {folder / below[0]}{others}"


def _names_of_files(chapter: Chapter) -> list[str]:
    return [f"{chapter.number:02d}_{FAST}.py", *(chapter.file_of(each) for each in chapter.exercises)]


def _grade(work: _Work, chapter: Chapter, exercise: Exercise) -> Grade:
    noted = work.progress.exercises.get(key_of(chapter, exercise), {})
    common = {
        "chapter": chapter.number,
        "exercise": exercise.name,
        "tries": noted.get("tries", 0),
        "hints": noted.get("hints", 0),
        "shown": bool(noted.get("shown", False)),
    }
    best = Grade(**common)
    for path, start in _files(work.folder, chapter, exercise):
        try:
            code = path.read_bytes() if path.is_file() else None
            if code is None and path.exists():
                return Grade(**common, result=WRONG, problem=f"{path.name} cannot be read: it is not a file")
        except OSError as error:
            return Grade(**common, result=WRONG, problem=f"{path.name} cannot be read: {error.strerror}")
        if code is None or code.split() == start.encode().split():
            continue
        if installed(exercise.needs):
            return Grade(**common, result=NOT_CHECKED, problem=f"it needs {installed(exercise.needs)}")
        problem = _checked(chapter, exercise, path)
        if problem and problem.kind == "chapter":
            return Grade(**common, result=NOT_CHECKED, problem=problem.what)
        if problem is None:
            copied = not common["shown"] and _same_code(code, exercise.solution)
            return Grade(**common, result=PASSED, is_solution=copied)
        if best.result == NOT_BEGUN:
            best = Grade(**common, result=WRONG, mistakes=problem.mistakes, problem=problem.what)
    return best


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
            return check(chapter, exercise, copies / path.name, copies)
        except Refused as refused:  # this system cannot check
            return Problem("chapter", "; ".join(reason.what for reason in refused.reasons))


def _files(folder: Path, chapter: Chapter, exercise: Exercise) -> list[tuple[Path, str]]:
    """Where an exercise may be solved, and what the file holds at first: its own, and the one of `--fast`."""
    own = [(folder / chapter.file_of(exercise), exercise.start)]
    if exercise.tests_of:
        return own
    return [*own, (folder / f"{chapter.number:02d}_{FAST}.py", starts_of_all(chapter))]


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


def _predictions(progress: Progress, chapter: Chapter) -> Predictions:
    answers = [progress.answers.get(key_of(chapter, each)) for each in chapter.questions]
    right = sum(bool(each and each["right"]) for each in answers)
    return Predictions(chapter.number, len(answers), sum(each is not None for each in answers), right)


def _names(folders: Sequence[Path]) -> list[str]:
    """What distinguishes the folders: their paths without the parts that all have, at the beginning and at the end."""
    parts = [folder.resolve().parts for folder in folders]
    if len(set(parts)) < len(parts):
        return [str(folder) for folder in folders]
    shortest = min(map(len, parts))
    first = next((at for at in range(shortest - 1) if len({each[at] for each in parts}) > 1), shortest - 1)
    last = next(
        (at for at in range(shortest - first - 1) if len({each[-1 - at] for each in parts}) > 1), shortest - first - 1
    )
    return ["/".join(each[first : len(each) - last]) for each in parts]


COLUMNS = (
    "learner", "chapter", "exercise", "result", "mistakes", "problem", "tries", "hints", "shown", "is_solution",
    "questions_right", "questions_answered", "questions",
)  # fmt: skip


def of_chapters(learners: Sequence[Learner]) -> Iterator[tuple[int, list[list[str]]]]:
    """For each chapter its number, and rows: the exercises, and for each learner what came of them."""
    for predictions in learners[0].predictions:
        number = predictions.chapter
        names = [grade.exercise for grade in learners[0].grades if grade.chapter == number]
        rows = [["", *names, "questions right"]]
        for learner in learners:
            own = next(each for each in learner.predictions if each.chapter == number)
            cells = [_cell(grade) for grade in learner.grades if grade.chapter == number]
            rows.append([learner.name, *cells, f"{own.right} of {own.count}" if own.answered else "–"])
        yield number, rows


def _cell(grade: Grade) -> str:
    """What came of an exercise, in a few words."""
    if grade.result == NOT_BEGUN:
        return "–" if not grade.tries else f"{NOT_BEGUN}, {_tries(grade)}"
    words = [" + ".join(grade.mistakes) or grade.result]
    if grade.is_solution:
        words.append("equals the solution")
    if grade.shown:
        words.append("solution shown")
    if grade.tries:
        words.append(_tries(grade))
    return ", ".join(words)


def _tries(grade: Grade) -> str:
    return f"{grade.tries} {'try' if grade.tries == 1 else 'tries'}"


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
