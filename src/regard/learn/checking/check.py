"""Check: whether a learner's file solves an exercise, found out in a process of its own with limits of time."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ...common.errors import Refused, refuse
from ...sandbox.child import Child, Lost
from ...sandbox.messages import last_lines
from ..chapter import Chapter, Exercise
from .problem import Checked, Problem

OPENING = 60.0  # seconds: importing torch takes most of them
LOADING = 5.0  # seconds to run the learner's file
IMPORTING = 30.0  # seconds to run a file that imports torch
STEP = 3.0  # seconds for one case
SLOW = 10.0  # seconds for one case with torch, whose first calls take longer, or for the learner's tests of one answer
FLOOD = 10 << 20  # bytes that a check may print
REPLY = 1 << 22
MEMORY = 4 << 30  # bytes: an exercise needs few of them, and a program that takes all slows the machine down


def checked(chapter: Chapter, exercise: Exercise, path: Path, folder: Path | None = None) -> Checked:
    """What is wrong with a file, and what it printed. folder: where it runs, if not in the folder of this process"""
    with Checker(chapter, exercise, folder) as checker:
        return checker.checked(path)


class Checker(contextlib.AbstractContextManager["Checker"]):
    """Checks files of one exercise, one after another in the same process as long as that goes on.

    folder: where they run, if not in the folder of this process
    """

    def __init__(self, chapter: Chapter, exercise: Exercise, folder: Path | None = None):
        self.chapter, self.exercise, self.folder = chapter, exercise, folder
        self.child: Child | None = None
        self.cases: int | None = None  # None until the process has read the chapter
        self.before = 0  # bytes that the process had printed before the file

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the process."""
        if self.child:
            self.child.close()

    def checked(self, path: Path) -> Checked:
        """What is wrong with a file, and what it printed. Raises Refused if the file does not exist."""
        if not path.is_file():
            expected = f"a file with the exercise {self.exercise.name}"
            fix = f"regard learn {self.chapter.number} writes {path.name} anew"
            raise refuse("learn", "the file does not exist", str(path), expected, fix)
        try:
            printed = self._printed(path)
        except _Stopped as stopped:
            return Checked(stopped.problem, stopped.problem.printed)
        problem = None if self.exercise.conform is None else _conforming(self.exercise, path)
        return Checked(problem, printed)

    def _printed(self, path: Path) -> str:
        """What a file prints whose steps are all right. Raises _Stopped if one is not."""
        if not path.read_bytes().strip():
            shows = f"regard learn {self.chapter.number} shows how it begins"
            raise _Stopped(Problem("runs", f"{path.name} is empty: {shows}"))
        if not self.exercise.cases and not self.exercise.tests_of:
            return ""
        if self.child is None or not self.child.end.alive:
            self.close()
            self.child, self.cases = Child("regard.learn.checking.worker", self.folder, MEMORY), None
        self.before = self.child.printed
        if self.cases is None:
            self.cases = self._opened(self.child)
        for seconds, where, *step in self._steps(path, self.cases):
            reply = self._reply(self.child, seconds, where, "step", *step)
            if reply is None:
                continue
            if reply["kind"] in ("raises", "shape", "law", "value"):
                with contextlib.suppress(_Stopped):  # code that does not return in another case has its problem already
                    reply = self._reply(self.child, 3 * self._step, self.exercise.function, "explain")
            raise _Stopped(Problem(**reply | {name: tuple(reply[name]) for name in ("details", "mistakes", "alike")}))
        return self._reply(self.child, STEP, "the check", "printed")

    def _opened(self, child: Child) -> int:
        """How many cases there are. The code of the chapter runs, which may be a teacher's own and fail."""
        opening = "open", str(self.chapter.path.resolve()), self.exercise.name
        try:
            return self._reply(child, OPENING, "the check", *opening)
        except _Stopped as stopped:
            why = last_lines(child.tail, 1) or stopped.problem.what
            what = f"the chapter's own cases or solution fail: {why}; run python -m regard.learn.proof"
            raise _Stopped(Problem("chapter", f"{what} {self.chapter.path}")) from None

    @property
    def _step(self) -> float:
        return SLOW if self.exercise.needs or self.exercise.tests_of else STEP

    def _steps(self, path: Path, cases: int) -> Iterator[tuple[Any, ...]]:
        """The steps in order: seconds, what runs, the name of the step and its arguments."""
        step = self._step
        imports = self.exercise.needs or b"torch" in path.read_bytes()
        yield IMPORTING if imports else LOADING, f"{path.name}, when it is imported,", "load", str(path.resolve())
        if self.exercise.tests_of:
            yield step, "a test", "right_answer"
            yield 3 * step, "a test", "wrong_answers"
            return
        for number in range(cases):
            yield step, self.exercise.function, "case", number

    def _reply(self, child: Child, seconds: float, where: str, *request: Any) -> Any:
        """What the process replies to a request. Raises _Stopped if it does not."""
        try:
            reply = json.loads(child.exchange(json.dumps(request).encode(), seconds, REPLY))
        except Lost as lost:
            what = f"{where} ended the process: {lost}"
            if lost.status == "timeout":
                flood = self._flood(child)
                why = f"it prints {flood}" if flood else "does a loop never end?"
                what = f"{where} did not return in {seconds:g} s: {why}"
            raise _Stopped(Problem("runs", what, printed=child.tail.decode("utf-8", "replace"))) from None
        except ValueError:
            child.end()
            raise _Stopped(Problem("runs", "the code writes to the connection with regard")) from None
        if flood := self._flood(child):
            child.end()
            raise _Stopped(Problem("runs", f"the code prints too much: {flood}"))
        return reply

    def _flood(self, child: Child) -> str:
        """How much the code of this file has printed, if that is too much."""
        count = child.printed - self.before
        return f"{count / 2**20:.0f} MiB" if count > FLOOD else ""


class _Stopped(Exception):
    """A check ends with a problem."""

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
    )
