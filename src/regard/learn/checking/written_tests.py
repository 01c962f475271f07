"""Exercises in which the learner writes tests: they must accept the right answer and reject every wrong one."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np

from ...conformance.mistakes.catalog import of_name
from ...conformance.mistakes.mistake import Mistake
from ..chapter import Exercise
from .grading import Grading, known_mistake
from .law import computed
from .problem import Problem

__all__ = ["TestGrading"]

NAMED = 5  # accepted wrong answers that are described


class TestGrading(Grading):
    """The check of a file of tests: functions `test_…(attend)` for the function of another exercise."""

    __test__ = False  # not a test of pytest's

    def __init__(self, exercise: Exercise, target: Exercise, path: Any):
        super().__init__(target, path)
        self.own = exercise
        self.tests: dict[str, Callable[[Any], None]] = {}

    def load(self) -> Problem | None:
        """Runs the learner's file, and finds its tests."""
        names: dict[str, Any] = {"__name__": "exercise", "__file__": str(self.path)}
        problem = self._executed(names)
        if problem:
            return problem
        self.tests = {name: each for name, each in names.items() if name.startswith("test") and callable(each)}
        if not self.tests:
            expected = f"write functions such as `def test_shape({self.exercise.function}):`"
            return self._problem("tests", f"there are no tests in {self.path.name}: {expected}")
        return None

    def right_answer(self) -> Problem | None:
        """Every test accepts the right answer."""
        for name, test in self.tests.items():
            try:
                self._run(lambda test=test: test(self.right))
            except BaseException as error:
                return self._raised(error, f"{name} rejects the right answer")
        return None

    def wrong_answers(self) -> Problem | None:
        """Some test rejects each wrong answer."""
        answers: dict[str, Any] = {name: self._mistaken(of_name(name)) for name in self.exercise.mistakes}
        answers |= {
            each.mistake: self._defined(each.code, self.exercise.function, each.mistake) for each in self.exercise.wrong
        }
        accepted = [name for name, function in answers.items() if self._accepted(function)]
        if not accepted:
            return None
        words = [f"{name}: {known_mistake(self.exercise, name).description}" for name in accepted[:NAMED]]
        rest = [f"and {len(accepted) - NAMED} more"] if len(accepted) > NAMED else []
        what = f"your tests accept {len(accepted)} of {len(answers)} wrong answers"
        problem = self._problem("tests", what, [*words, *rest])
        return Problem(**vars(problem) | {"mistakes": tuple(accepted)})

    def _accepted(self, function: Any) -> bool:
        for test in self.tests.values():
            try:
                self._run(lambda test=test: test(function))
            except BaseException:  # whatever a test raises, it rejects the answer
                return False
        return True

    def _mistaken(self, mistake: Mistake) -> Callable[..., Any]:
        """The right function with this mistake."""

        def function(*values: Any, **named: Any) -> Any:
            names = list(self.cases[0])
            arguments = dict(zip(names, values)) | named
            right = np.asarray(self.right(**copy.deepcopy(arguments)))
            wrong = computed(self.exercise.computes, arguments, (mistake,), right)
            return right if wrong is None else wrong

        return function
