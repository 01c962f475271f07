"""Problem: what is wrong with a learner's answer, for programs, and in the words that a learner reads."""

from __future__ import annotations

from dataclasses import dataclass

from ..chapter import Exercise


@dataclass(frozen=True)
class Problem:
    """What a check found.

    kind: "runs", "raises", "shape", "law", "value", "inputs", "random", "tests", "conform", or
    "chapter": nothing of the learner's is wrong, the exercise itself cannot be run · what: a sentence ·
    details: lines such as "q = [[1, 2]]" · mistakes: names of known mistakes that explain it · alike: other names that
    no case tells apart from these · description, cause, fix: of the mistake · printed: what the learner's code printed
    """

    kind: str
    what: str
    details: tuple[str, ...] = ()
    mistakes: tuple[str, ...] = ()
    alike: tuple[str, ...] = ()
    description: str = ""
    cause: str = ""
    fix: str = ""
    printed: str = ""


@dataclass(frozen=True)
class Checked:
    """The result of a check. problem: what is wrong, or None · printed: what the learner's code printed"""

    problem: Problem | None
    printed: str = ""


@dataclass(frozen=True)
class Message:
    """What is said of a learner's file, in the terminal and on a page.

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
    alike = f" (or {', '.join(problem.alike)}: no case tells them apart)" if problem.alike else ""
    mistake = "" if problem.kind == "tests" else " and ".join(problem.mistakes)
    words = ("it is", problem.description), ("cause", problem.cause), ("fix", problem.fix)
    about = tuple(row for row in words if row[1])
    return Message(False, f"{exercise.function}: not yet", result.printed, problem.what, details, mistake, alike, about)
