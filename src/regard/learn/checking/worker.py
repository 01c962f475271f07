"""The service of a check: each step of the check of a learner's file, as the parent requests it."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .grading import KEPT


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

    grading: Any
    problem: Any = None

    def open(self, chapter: str, name: str) -> Any:
        self.grading = _opened(chapter, name)
        return len(self.grading.cases)

    def step(self, name: str, *given: Any) -> Any:
        self.problem = getattr(self.grading, name)(*given)
        return None if self.problem is None else self.problem.to_json()

    def explain(self) -> Any:
        from .naming import explained

        return explained(self.problem, self.grading).to_json()

    def printed(self) -> Any:
        return "".join(self.grading.printed)[:KEPT]


def _opened(chapter: str, name: str) -> Any:
    from ..source import read_chapter
    from .grading import Grading
    from .written_tests import TestGrading

    read = read_chapter(Path(chapter))
    exercise: Any = read.part(name)
    if exercise.needs:
        # The arrays are small: on a busy machine, threads that wait for each other take seconds.
        importlib.import_module("torch").set_num_threads(1)
    if exercise.tests_of:
        target: Any = read.part(exercise.tests_of)
        return TestGrading(target)
    return Grading(exercise)
