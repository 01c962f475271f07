"""The service of a check: each step of the check of a learner's file, as the parent requests it.

Of exercises in which the learner writes tests: they must accept the right answer and reject every wrong one.
"""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

from ..source import read_chapter
from .grading import KEPT, Grading, attempt
from .naming import explained, known_mistake
from .problem import Problem

NAMED = 5  # accepted wrong answers that are described


class TestGrading(Grading):
    """The check of a file of tests: functions `test_…(attend)` for the function of another exercise."""

    __test__ = False  # not a test of pytest's

    tests: dict[str, Callable[[Any], None]]

    def load(self, path: str) -> Problem | None:
        """Runs the learner's file, and finds its tests."""
        names, problem = self.executed_file(path)
        if problem:
            return problem
        self.tests = {name: each for name, each in names.items() if name.startswith("test") and callable(each)}
        if not self.tests:
            expected = f"write functions such as `def test_shape({self.exercise.function}):`"
            return self.problem("tests", f"{self.path.name} has no tests: {expected}")
        return None

    def right_answer(self) -> Problem | None:
        """Every test accepts the right answer."""
        for name, test in self.tests.items():
            _, error = self.run(partial(test, self.right))
            if error is not None:
                return replace(self.error(error, f"{name} rejects the right answer"), kind="tests")
        return None

    def wrong_answers(self) -> Problem | None:
        """Some test rejects each wrong answer."""
        answers = {each.mistake: self.defined(each.code) for each in self.exercise.wrong}
        accepted = [
            name
            for name, function in answers.items()
            if all(attempt(partial(test, function))[1] is None for test in self.tests.values())
        ]
        if not accepted:
            return None
        words = [f"{name}: {known_mistake(self.exercise, name).description}" for name in accepted[:NAMED]]
        rest = [f"and {len(accepted) - NAMED} more"] if len(accepted) > NAMED else []
        what = f"your tests accept {len(accepted)} of {len(answers)} wrong answers"
        return replace(self.problem("tests", what, [*words, *rest]), mistakes=tuple(accepted))


def service() -> Callable[[bytes], bytes]:
    """The replies to requests: the name of a step and its arguments."""
    sys.dont_write_bytecode = True  # the learner's folder holds the learner's files only
    check = _Check()

    def reply(request: bytes) -> bytes:
        step, *arguments = json.loads(request)
        return json.dumps(getattr(check, step)(*arguments)).encode()

    return reply


class _Check:
    """The steps that may be requested; each returns types of JSON."""

    grading: Grading
    problem: Any

    def open(self, chapter: str, name: str) -> int:
        read = read_chapter(Path(chapter))
        exercise: Any = read.part(name)
        if exercise.needs:
            # The arrays are small: on a busy machine, threads that wait for each other take seconds.
            importlib.import_module("torch").set_num_threads(1)
        target: Any = read.part(exercise.tests_of)
        self.grading = Grading(exercise) if target is None else TestGrading(target)
        return len(self.grading.cases)

    def step(self, name: str, *given: Any) -> dict[str, Any] | None:
        self.problem = getattr(self.grading, name)(*given)
        return None if self.problem is None else asdict(self.problem)

    def explain(self) -> dict[str, Any]:
        return asdict(explained(self.problem, self.grading))

    def printed(self) -> str:
        return "".join(self.grading.printed)[:KEPT]
