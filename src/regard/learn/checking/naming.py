"""What explains a learner's results: a known mistake of the chapter, or else one place of the learner's code."""

from __future__ import annotations

import time
from dataclasses import replace

from ...laws.mistake import Mistake
from ...laws.mistakes import of_name
from ..chapter import Exercise, WrongAnswer
from .grading import Grading, agree
from .pairs import pair_of_mistakes
from .problem import Problem
from .repair import wrong_place

OBSERVING = 1.0  # seconds in which all cases are run, as far as that goes


def explained(problem: Problem, grading: Grading) -> Problem:
    """The problem with the known mistake that gives the learner's results in all cases, or two of them together; or
    else with the place of the learner's code that is wrong.
    """
    until, outcome, cases = time.monotonic() + OBSERVING, grading.outcome, grading.cases
    seen = {at: outcome(grading.learner, case) for at, case in enumerate(cases) if time.monotonic() < until}
    if all(agree(each, grading.wanted[at], grading.digits) for at, each in seen.items()):
        return problem  # all results are right: a law alone found what is wrong
    answers = [(each.mistake, grading.defined(each.code)) for each in grading.exercise.wrong]
    matching = list(dict.fromkeys(name for name, answer in answers if grading.gives(answer, seen)))
    mistakes = tuple(matching[:1]) or pair_of_mistakes(grading, seen)
    if not mistakes:
        what, fix = wrong_place(grading, seen, answers)
        return replace(problem, description=what, fix=fix)
    named = [known_mistake(grading.exercise, name) for name in mistakes]
    return replace(
        problem,
        mistakes=mistakes,
        alike=tuple(matching[1:]),
        description=" and ".join(each.description for each in named),
        cause="; and ".join(each.cause for each in named),
        fix="; and ".join(each.fix for each in named),
    )


def known_mistake(exercise: Exercise, name: str) -> WrongAnswer | Mistake:
    """A mistake by name, with description, cause and fix: the chapter's own, or the catalog's."""
    own = (each for each in exercise.wrong if each.mistake == name and each.cause)
    return next(own, None) or of_name(name)
