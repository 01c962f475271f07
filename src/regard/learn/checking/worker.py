"""The process in which a learner's file is checked: each step as the parent requests it.

CONNECTION: the descriptor of a socket for messages · LIFELINE: that of a pipe that closes when the parent ends, and
this process with it.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from pathlib import Path
from typing import Any

from ...conformance.process.frames import read_frame, write_frame
from ...conformance.process.one_call import limit_memory
from ...conformance.process.worker import end_with, flush, leave
from .law import KEPT

MEMORY = 4 << 30  # bytes: an exercise needs few of them, and a program that takes all slows the machine down


def main(connection: int, lifeline: int) -> None:
    """Answers requests until the parent closes the connection."""
    end_with(lifeline)
    for descriptor in (connection, lifeline):
        os.set_inheritable(descriptor, False)  # what the learner's code starts shall not keep them open
    limit_memory(MEMORY)
    sys.dont_write_bytecode = True  # the learner's folder holds the learner's files only
    process = os.getpid()
    checked = _Checked()
    while (request := read_frame(connection)) is not None:
        step, *given = json.loads(request)
        reply = getattr(checked, step)(*given)
        flush()
        if os.getpid() != process:
            os._exit(0)
        write_frame(connection, json.dumps(reply).encode())
    leave()


class _Checked:
    """The steps that may be requested; each returns types of JSON."""

    grading: Any
    problem: Any = None

    def open(self, chapter: str, name: str) -> Any:
        self.grading = _opened(chapter, name)
        return {"cases": len(self.grading.cases)}

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
    exercise = next(each for each in read.exercises if each.name == name)
    if exercise.needs:
        # The arrays are small: on a busy machine, threads that wait for each other take seconds.
        importlib.import_module("torch").set_num_threads(1)
    if exercise.tests_of:
        target = next(each for each in read.exercises if each.name == exercise.tests_of)
        return TestGrading(target)
    return Grading(exercise)
