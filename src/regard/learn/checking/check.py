"""Check: whether a learner's file solves an exercise, found out in a process of its own with limits of time."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...common.errors import Refused, refuse
from ...conformance.process.child import Child, Lost
from ..chapter import Chapter, Exercise
from .problem import Problem

__all__ = ["Checked", "Checker", "check", "checked"]

OPENING = 60.0  # seconds: importing torch takes most of them
LOADING = 5.0  # seconds to run the learner's file
IMPORTING = 30.0  # seconds to run a file that imports torch
STEP = 3.0  # seconds for one case, and for one of several tests
FLOOD = 10 << 20  # bytes that a check may print
REPLY = 1 << 22


@dataclass(frozen=True)
class Checked:
    """The result of a check. problem: what is wrong, or None · printed: what the learner's code printed"""

    problem: Problem | None
    printed: str = ""


def check(chapter: Chapter, exercise: Exercise, path: Path) -> Problem | None:
    """What is wrong with a file, or None."""
    return checked(chapter, exercise, path).problem


def checked(chapter: Chapter, exercise: Exercise, path: Path) -> Checked:
    """What is wrong with a file, and what it printed."""
    with Checker(chapter, exercise) as checker:
        return checker.checked(path)


class Checker:
    """Checks files of one exercise, one after another in the same process as long as that goes on."""

    def __init__(self, chapter: Chapter, exercise: Exercise):
        self.chapter, self.exercise = chapter, exercise
        self.child: Child | None = None

    def __enter__(self) -> Checker:
        return self

    def __exit__(self, *_: object) -> None:
        if self.child:
            self.child.close()

    def checked(self, path: Path) -> Checked:
        """What is wrong with a file, and what it printed. Raises Refused if there is no such file."""
        if not path.is_file():
            expected = f"a file with the exercise {self.exercise.name}"
            fix = f"regard learn {self.chapter.number} writes {path.name} anew"
            raise refuse("learn", "the file does not exist", given=str(path), expected=expected, fix=fix)
        if not path.read_bytes().strip():
            shows = f"regard learn {self.chapter.number} shows what belongs into it"
            return Checked(Problem("runs", f"{path.name} is empty: {shows}"))
        if self.exercise.conform is not None:
            return Checked(_conforming(self.exercise, path))
        if self.child is None or not self.child.end.alive:
            if self.child:
                self.child.close()
            self.child = Child("regard.learn.checking.worker")
        return _Check(self.child, self.chapter, self.exercise, path).result()


class _Check:
    """The check of one file. child: the process in which its code runs"""

    def __init__(self, child: Child, chapter: Chapter, exercise: Exercise, path: Path):
        self.child, self.chapter, self.exercise, self.path = child, chapter, exercise, path
        self.before = child.printed

    def result(self) -> Checked:
        try:
            opening = "open", str(self.chapter.path), self.exercise.name, str(self.path.resolve())
            opened = self._reply(OPENING, "the check", *opening)
            for seconds, where, *step in self._steps(opened["cases"]):
                reply = self._reply(seconds, where, "step", *step)
                if reply is not None:
                    return self._explained(Problem.from_json(reply))
            return Checked(None, self._reply(STEP, "the check", "printed"))
        except _Stopped as stopped:
            return Checked(stopped.problem, stopped.problem.printed)

    def _steps(self, cases: int) -> Iterator[tuple[Any, ...]]:
        """The steps in order: seconds, what runs, the name of the step and its arguments."""
        imports = self.exercise.needs or b"torch" in self.path.read_bytes()
        yield IMPORTING if imports else LOADING, f"{self.path.name}, when it is imported,", "load"
        if self.exercise.tests_of:
            yield STEP, "a test", "right_answer"
            yield 3 * STEP, "a test", "wrong_answers"
            return
        for number in range(cases):
            yield STEP, self.exercise.function, "case", number

    def _explained(self, problem: Problem) -> Checked:
        if problem.kind in ("raises", "shape", "law", "value"):
            with contextlib.suppress(_Stopped):  # it may not return in another case; this one has its problem already
                problem = Problem.from_json(self._reply(3 * STEP, self.exercise.function, "explain"))
        return Checked(problem, problem.printed)

    def _reply(self, seconds: float, where: str, *request: Any) -> Any:
        """What the process replies to a request. Raises _Stopped if it does not."""
        try:
            reply = json.loads(self.child.exchange(json.dumps(request).encode(), seconds, REPLY))
        except Lost as lost:
            raise _Stopped(self._lost(lost, seconds, where)) from None
        except ValueError:
            self.child.end()
            raise _Stopped(Problem("runs", "the code writes to the connection with regard")) from None
        if self._flooded():
            self.child.end()
            raise _Stopped(Problem("runs", f"the code prints too much: {self._flooded()}"))
        return reply

    def _lost(self, lost: Lost, seconds: float, where: str) -> Problem:
        printed = self.child.tail.decode("utf-8", "replace")
        if lost.status == "timeout":
            why = f"it prints {self._flooded()}" if self._flooded() else "does a loop never end?"
            return Problem("runs", f"{where} did not return in {seconds:g} s: {why}", printed=printed)
        return Problem("runs", f"{where} ended the process: {lost}", printed=printed)

    def _flooded(self) -> str:
        count = self.child.printed - self.before
        return f"{count / 2**20:.0f} MiB" if count > FLOOD else ""


class _Stopped(Exception):
    def __init__(self, problem: Problem):
        super().__init__(problem.what)
        self.problem = problem


def _conforming(exercise: Exercise, path: Path) -> Problem | None:
    """Whether a function passes `regard conform` to the level of the exercise."""
    from ... import conformance

    try:
        report = conformance.conform(f"{path.resolve()}:{exercise.function}", level=exercise.conform or 0)
    except Refused as refused:
        reason = refused.reasons[0]
        return Problem("runs", reason.what, (reason.given, f"expected: {reason.expected}", f"fix: {reason.fix}"))
    if report.right:
        return None
    first = report.findings[0]
    return Problem(
        "conform",
        f"law {first.law}: {first.measured}",
        tuple(first.counterexample.splitlines()),
        mistakes=(first.mistake,) if first.mistake else (),
        cause=first.cause,
        fix=first.fix,
        extra={"level": report.level, "findings": len(report.findings)},
    )
