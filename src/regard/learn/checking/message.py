"""Message: the result of a check in the words that a learner reads, in the terminal and on a page."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..chapter import Exercise
from .check import Checked


@dataclass(frozen=True)
class Message:
    """What is said of a learner's file.

    right, says: the result · printed: what the learner's code printed · what, details: the problem, with lines such as
    "q = [[1, 2]]" · mistake: the names of known mistakes that explain it · alike: the others that no case tells apart
    from these · about: ("cause", words) and so on
    """

    right: bool
    says: str
    printed: str = ""
    what: str = ""
    details: tuple[str, ...] = ()
    mistake: str = ""
    alike: str = ""
    about: tuple[tuple[str, str], ...] = ()


def message(result: Checked, exercise: Exercise) -> Message:
    """The words for a result."""
    problem = result.problem
    if problem is None:
        return Message(True, f"{exercise.function} is right: it passes every case and every law.", result.printed)
    details = tuple(each for line in problem.details for each in line.splitlines() or [""])
    found = Message(False, f"{exercise.function}: not yet", result.printed, problem.what, details)
    if not problem.mistakes or problem.kind == "tests":
        return found
    alike = f" (or {', '.join(problem.alike)}: no case tells them apart)" if problem.alike else ""
    words = (("it is", problem.description), ("cause", problem.cause), ("fix", problem.fix))
    about = tuple(row for row in words if row[1])
    return replace(found, mistake=" and ".join(problem.mistakes), alike=alike, about=about)
