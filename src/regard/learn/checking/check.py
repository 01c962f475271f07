"""Check: whether a learner's file solves an exercise, found out in a process of its own with limits of time."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from ...common.errors import refuse
from ...conformance.process.child import Child, Lost
from ..chapter import Chapter, Exercise
from .problem import Problem

__all__ = ["check"]

OPENING = 60.0  # seconds: importing torch takes most of them
LOADING = {"": 5.0, "torch": 30.0, "demo": 30.0}  # seconds to run the learner's file
STEP = 3.0  # seconds for one case
FLOOD = 10 << 20  # bytes that a check may print
REPLY = 1 << 22


def check(chapter: Chapter, exercise: Exercise, path: Path) -> Problem | None:
    """What is wrong with a file, or None."""
    if not path.is_file():
        fix = f"regard learn {chapter.number} writes {path.name} anew"
        raise refuse(
            "learn", "there is no such file", given=str(path), expected=f"the exercise {exercise.name}", fix=fix
        )
    if not path.read_bytes().strip():
        return Problem("runs", f"{path.name} is empty: regard learn {chapter.number} shows what belongs into it")
    if exercise.cases or exercise.conform is None:
        with _Checked(chapter, exercise, path) as checked:
            problem = checked.result()
        if problem or exercise.conform is None:
            return problem
    return _conforming(exercise, path)


class _Checked:
    def __init__(self, chapter: Chapter, exercise: Exercise, path: Path):
        self.chapter, self.exercise, self.path = chapter, exercise, path
        self.child = Child("regard.learn.checking.worker")

    def __enter__(self) -> _Checked:
        return self

    def __exit__(self, *_: object) -> None:
        self.child.close()

    def result(self) -> Problem | None:
        try:
            opened = self._ask(OPENING, "open", str(self.chapter.path), self.exercise.name, str(self.path.resolve()))
            problem = None
            for step in self._steps(opened["cases"]):
                problem = self._step(*step)
                if problem:
                    break
            if problem is None or problem.kind not in ("raises", "shape", "law", "value"):
                return problem
        except _Stopped as stopped:
            return stopped.problem
        try:
            return Problem.from_json(self._ask(3 * STEP, "explain"))
        except _Stopped:
            return problem  # the code that does not return in another case is named already

    def _steps(self, cases: int) -> Iterator[tuple[float, str, Any]]:
        yield LOADING[self.exercise.needs], "load", ()
        if self.exercise.tests_of:
            yield STEP, "right_answer", ()
            yield 3 * STEP, "wrong_answers", ()
            return
        for number in range(cases):
            yield STEP, "case", (number,)

    def _step(self, seconds: float, step: str, given: tuple[Any, ...]) -> Problem | None:
        reply = self._ask(seconds, step, *given)
        return None if reply is None else Problem.from_json(reply)

    def _ask(self, seconds: float, step: str, *given: Any) -> Any:
        began = time.monotonic()
        try:
            reply = json.loads(self.child.exchange(json.dumps([step, *given]).encode(), seconds, REPLY))
        except Lost as lost:
            raise _Stopped(self._lost(lost, seconds, step)) from None
        except ValueError:
            raise _Stopped(Problem("runs", "the code writes to the connection with regard")) from None
        if self.child.printed > FLOOD:
            printed = f"{self.child.printed / 2**20:.0f} MiB in {time.monotonic() - began:.1f} s"
            raise _Stopped(Problem("runs", f"the code prints too much: {printed}"))
        return reply

    def _lost(self, lost: Lost, seconds: float, step: str) -> Problem:
        where = {"load": f"{self.path.name}, when it is imported,", "open": "the check"}.get(step)
        where = where or f"{self.exercise.function}"
        if lost.status == "timeout":
            flooded = self.child.printed > FLOOD
            why = f"it prints {self.child.printed / 2**20:.0f} MiB" if flooded else "does a loop never end?"
            return Problem("runs", f"{where} did not return in {seconds:g} s: {why}")
        return Problem("runs", f"{where} ended the process: {lost}")


class _Stopped(Exception):
    def __init__(self, problem: Problem):
        super().__init__(problem.what)
        self.problem = problem


def _conforming(exercise: Exercise, path: Path) -> Problem | None:
    """Whether a function passes `regard conform` to the level of the exercise."""
    from ... import conformance
    from ...common.errors import Refused

    target = f"{path.resolve()}:{exercise.function}"
    try:
        report = conformance.conform(target, level=exercise.conform or 0)
    except Refused as refused:
        reason = refused.reasons[0]
        return Problem("runs", reason.what, (reason.given, f"expected: {reason.expected}", f"fix: {reason.fix}"))
    if report.right:
        return None
    first = report.findings[0]
    return replace(
        Problem("conform", f"law {first.law}: {first.measured}", tuple(first.counterexample.splitlines())),
        mistakes=(first.mistake,) if first.mistake else (),
        cause=first.cause,
        fix=first.fix,
        extra={"level": report.level, "findings": len(report.findings)},
    )
