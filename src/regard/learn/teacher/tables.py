"""Tables of grades: rows for a terminal, CSV for a spreadsheet, JSON for programs."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from .grades import NOT_BEGUN, PASSED, Grade, Learner

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
            writer.writerow({name: _plain(value) for name, value in row.items()})
    return text.getvalue()


def _plain(value: Any) -> Any:
    """Text that a spreadsheet would take for a formula begins with an apostrophe."""
    return f"'{value}" if isinstance(value, str) and value.startswith(("=", "+", "-", "@", "\t", "\r")) else value


def as_data(learners: Sequence[Learner]) -> list[dict[str, Any]]:
    """A list of learners, each with its grades and the counts of its questions, to be written as JSON."""
    return [{**asdict(learner), "folder": str(learner.folder), "passed": learner.passed} for learner in learners]
