"""The process in which a learner's file is checked: each step as the parent requests it.

CONNECTION: the descriptor of a socket for messages · LIFELINE: that of a pipe that closes when the parent ends, and
this process with it.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from ...conformance.process.frames import read_frame, write_frame
from ...conformance.process.memory import limit_memory
from ...conformance.process.worker import end_with, flush, leave

__all__ = ["main"]


def main(connection: int, lifeline: int) -> None:
    """Answers requests until the parent closes the connection."""
    end_with(lifeline)
    for descriptor in (connection, lifeline):
        os.set_inheritable(descriptor, False)  # what the learner's code starts shall not keep them open
    limit_memory()
    grading: Any = None
    problem: Any = None
    while (request := read_frame(connection)) is not None:
        step, *given = json.loads(request)
        if step == "open":
            grading = _opened(*given)
            reply: Any = {"cases": len(grading.cases)}
        elif step == "explain":
            reply = grading.explain(problem).to_json()
        else:
            problem = getattr(grading, step)(*given)
            reply = None if problem is None else problem.to_json()
        flush()
        write_frame(connection, json.dumps(reply).encode())
    leave()


def _opened(chapter: str, name: str, path: str) -> Any:
    from ..source import read_chapter
    from .grading import Grading
    from .written_tests import TestGrading

    read = read_chapter(Path(chapter))
    exercise = next(each for each in read.exercises if each.name == name)
    if exercise.needs:
        # The arrays are small: on a busy machine, threads that wait for each other take seconds for microseconds of work.
        __import__("torch").set_num_threads(1)
    if exercise.tests_of:
        target = next(each for each in read.exercises if each.name == exercise.tests_of)
        return TestGrading(exercise, target, Path(path))
    return Grading(exercise, Path(path))
