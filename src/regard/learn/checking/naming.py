"""Which known mistakes explain a learner's results: those of the chapter, those of the catalog, and pairs of these."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from ...conformance.mistakes.catalog import CATALOG, of_name
from ...conformance.mistakes.mistake import Mistake
from ..chapter import Exercise, WrongAnswer
from .cases import agree
from .grading import Grading
from .law import Failed, computed
from .problem import Problem

OBSERVING = 1.0  # seconds in which the cases are run that have not been run yet
PAIRING = 1.0  # seconds in which pairs of mistakes are tried

Seen = Mapping[int, Any]


def explained(problem: Problem, grading: Grading) -> Problem:
    """The problem with the known mistakes that give the learner's results in all cases."""
    seen = _observed(grading)
    exercise = grading.exercise
    if not any(
        isinstance(each, Failed) or not agree(each, grading.wanted[at], grading.digits) for at, each in seen.items()
    ):
        return problem  # all results are right: a law alone found what is wrong
    matching = list(dict.fromkeys(_matching(grading, seen)))
    expected = {*exercise.mistakes, *(each.mistake for each in exercise.wrong)}
    matching = [name for name in matching if name in expected] or matching
    pair = () if matching or not exercise.computes else _pair(grading, seen)
    if not matching and not pair:
        return problem
    named = [known_mistake(exercise, name) for name in (pair or matching[:1])]
    return replace(
        problem,
        mistakes=pair or tuple(matching[:1]),
        alike=tuple(matching[1:]),
        description="; and ".join(each.description for each in named),
        cause="; ".join(dict.fromkeys(each.cause for each in named)),
        fix="; ".join(dict.fromkeys(each.fix for each in named)),
    )


def known_mistake(exercise: Exercise, name: str) -> WrongAnswer:
    """A mistake by name, with description, cause and fix: the chapter's own, or the catalog's."""
    for wrong in exercise.wrong:
        if wrong.mistake == name and wrong.cause:
            return wrong
    entry = of_name(name)
    return WrongAnswer(name, 0, "", entry.description, entry.cause, entry.fix)


def _observed(grading: Grading) -> dict[int, Any]:
    """The learner's results of all cases that time allows; for cases that raise, the error."""
    seen: dict[int, Any] = {}
    until = time.monotonic() + OBSERVING
    for number, arguments in enumerate(grading.cases):
        if time.monotonic() > until:
            break
        known = number in grading.results
        seen[number] = grading.results[number] if known else grading.outcome(grading.learner, arguments)
    return seen


def _matching(grading: Grading, seen: Seen) -> Iterator[str]:
    """The mistakes that explain all results: those of the chapter, then those of the catalog."""
    exercise = grading.exercise
    for index, wrong in enumerate(exercise.wrong):
        if _does_the_same(grading, index, seen):
            yield wrong.mistake
    if exercise.computes:
        listed = [of_name(name) for name in exercise.mistakes]
        for mistake in [*listed, *(each for each in CATALOG if each not in listed)]:
            if _explains(grading, (mistake,), seen):
                yield mistake.name


def _does_the_same(grading: Grading, index: int, seen: Seen) -> bool:
    """Whether a wrong answer does what the learner's code does. Errors are alike if their types are; if nothing else is
    known of the learner's code, their messages must be equal, too.
    """
    silent = all(isinstance(result, Failed) for result in seen.values())
    for number, result in seen.items():
        other = grading.wrong(index, number)
        if isinstance(result, Failed) and isinstance(other, Failed):
            if result.kind != other.kind or (silent and result.words != other.words):
                return False
        elif isinstance(result, Failed) or isinstance(other, Failed) or not agree(other, result, grading.digits):
            return False
    return bool(seen)


def _pair(grading: Grading, seen: Seen) -> tuple[str, ...]:
    """Two mistakes that explain all results together; the first is one that the exercise lists."""
    until = time.monotonic() + PAIRING
    usable = [each for each in CATALOG if not each.alone and _changes(grading, each)]
    listed = [each for each in usable if each.name in grading.exercise.mistakes]
    for first, second in itertools.chain(itertools.combinations(listed, 2), itertools.product(listed, usable)):
        if time.monotonic() > until:
            break
        if first is not second and _explains(grading, (first, second), seen):
            return first.name, second.name
    return ()


def _changes(grading: Grading, mistake: Mistake) -> bool:
    """Whether a mistake makes a difference in some case."""
    for case, wanted in zip(grading.cases, grading.wanted):
        if isinstance(wanted, np.ndarray):
            found = computed(grading.exercise.computes, case, (mistake,), wanted)
            if found is not None and not agree(found, wanted, grading.digits):
                return True
    return False


def _explains(grading: Grading, mistakes: tuple[Mistake, ...], seen: Seen) -> bool:
    """Whether mistakes give these results, which are not all right."""
    differs = False
    for number, result in seen.items():
        wanted = grading.wanted[number]
        if isinstance(result, Failed) or not isinstance(wanted, np.ndarray):
            return False
        found = computed(grading.exercise.computes, grading.cases[number], mistakes, wanted)
        found = wanted if found is None else found.astype(wanted.dtype)
        if not agree(found, result, grading.digits):
            return False
        differs = differs or not agree(found, wanted, grading.digits)
    return differs
