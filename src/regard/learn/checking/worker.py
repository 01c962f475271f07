"""The service of a check: each step of the check of a learner's file, as the parent requests it."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ..source import read_chapter
from .grading import KEPT, Grading
from .naming import explained
from .problem import Problem
from .written_tests import TestGrading


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
    problem: Problem | None

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
        assert self.problem is not None
        return asdict(explained(self.problem, self.grading))

    def printed(self) -> str:
        return "".join(self.grading.printed)[:KEPT]
