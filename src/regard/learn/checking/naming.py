"""Which known mistakes explain a learner's results: those of the chapter, those of the catalog, and pairs of these.

Exercises that are a step of attention are compared with the law. The names of their arguments have the meaning that
they have everywhere: q, k, v, mask, causal, scale, lengths. `scores` are those of a softmax; `rows` and `keys` are the
sizes of a causal mask, `n` both.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import combinations, islice
from typing import Any

import numpy as np

from ...laws.arguments import Arguments
from ...laws.call import Call, Conventions
from ...laws.explain import explain
from ...laws.forward import forward, meaning
from ...laws.mistake import Mistake, apply
from ...laws.mistakes import CATALOG, of_name
from ...laws.observed import Observed
from ..chapter import Exercise, WrongAnswer
from .grading import Failed, Grading, agree
from .problem import Problem

OBSERVING = 1.0  # seconds in which the cases are run that have not been run yet
PAIRS = 600  # pairs of wrong answers of a chapter, of which the first case rejects nearly all

Seen = Mapping[int, Any]


def explained(problem: Problem, grading: Grading) -> Problem:
    """The problem with the known mistakes that give the learner's results in all cases; otherwise with the only one
    that gives them up to the first wrong case: a second mistake may show in later ones.
    """
    seen = _observed(grading)
    wrong = [at for at, each in sorted(seen.items()) if not agree(each, grading.wanted[at], grading.digits)]
    if not wrong:
        return problem  # all results are right: a law alone found what is wrong
    exercise, so_far = grading.exercise, ""
    matching = _of_chapter(grading, seen)
    names, alike = _by_law(grading, seen, pairs=not matching)
    if len(names) == 1:
        matching = list(dict.fromkeys([*matching, *names, *alike]))
    expected = {*exercise.mistakes, *(each.mistake for each in exercise.wrong)}
    matching = [name for name in matching if name in expected] or matching
    mistakes = tuple(matching[:1]) or names or _two_changes(grading, seen)
    if not mistakes:
        matching = _of_chapter(grading, {at: each for at, each in seen.items() if at <= wrong[0]})
        if len(matching) != 1:
            return problem
        mistakes, so_far = tuple(matching), "so far, "
    named = [known_mistake(exercise, name) for name in mistakes]
    said: dict[str, Any] = {
        field: "; ".join(dict.fromkeys(getattr(each, field) for each in named))
        for field in ("description", "cause", "fix")
    }
    said["description"] = so_far + said["description"]
    return replace(problem, mistakes=mistakes, alike=tuple(matching[1:]), **said)


def _of_chapter(grading: Grading, seen: Seen) -> list[str]:
    """The wrong answers of the exercise that do what the learner's code does in these cases."""
    return list(
        dict.fromkeys(each.mistake for each in grading.exercise.wrong if _does_the_same(grading, each.code, seen))
    )


def known_mistake(exercise: Exercise, name: str) -> WrongAnswer:
    """A mistake by name, with description, cause and fix: the chapter's own, or the catalog's."""
    for wrong in exercise.wrong:
        if wrong.mistake == name and wrong.cause:
            return wrong
    entry = of_name(name)
    return WrongAnswer(name, "", entry.description, entry.cause, entry.fix)


def _observed(grading: Grading) -> dict[int, Any]:
    """The learner's results of all cases that time allows; for cases that raise, the error."""
    seen = dict(grading.results)
    until = time.monotonic() + OBSERVING
    for number, arguments in enumerate(grading.cases):
        if number not in seen and time.monotonic() < until:
            seen[number] = grading.outcome(grading.learner, arguments)
    return seen


def _does_the_same(grading: Grading, code: str, seen: Seen) -> bool:
    """Whether the code of a wrong answer does what the learner's code does. Errors are alike if their types are; if
    nothing else is known of the learner's code, their messages must be equal, too.
    """
    function = grading.defined(code)
    silent = all(isinstance(each, Failed) for each in seen.values())
    for number, each in seen.items():
        other = grading.outcome(function, grading.cases[number])
        if isinstance(each, Failed) and isinstance(other, Failed):
            if each.kind != other.kind or (silent and each.words != other.words):
                return False
        elif not agree(other, each, grading.digits):
            return False
    return bool(seen)


def _two_changes(grading: Grading, seen: Seen) -> tuple[str, ...]:
    """Two wrong answers of the chapter whose changes of the solution, both made, do what the learner's module does. Of
    functions none are tried: a loop with two changes may never end.
    """
    wrong = [each for each in grading.exercise.wrong if each.changes and "class " in each.code]
    for first, second in islice(combinations(wrong, 2), PAIRS):
        code = first.code
        for old, new in second.changes:
            code = code.replace(old, new)
        try:
            if _does_the_same(grading, code, seen):
                return first.mistake, second.mistake
        except SyntaxError:  # the changes do not fit together
            continue
    return ()


LAWS = Conventions()


def computed(step: str, case: dict[str, Any], mistakes: Iterable[Mistake], like: np.ndarray) -> np.ndarray | None:
    """A step of attention with these mistakes, in the shape of the right result; None if they do not apply."""
    call = call_of(case)
    arguments = meaning(call, LAWS)
    with np.errstate(all="ignore"):
        try:
            changed = apply(mistakes, arguments)
        except (ArithmeticError, ValueError):  # without rows or keys a mistake may have no result, such as 1/√0
            return np.full(like.shape, np.nan)
    return None if changed is arguments else result(step, call, changed, like)


def result(step: str, call: Call, arguments: Arguments, like: np.ndarray) -> np.ndarray:
    """A step of attention with these arguments, in the shape of the right result; NaN without a result."""
    with np.errstate(all="ignore"):
        try:
            array = getattr(forward(arguments, call.q, call.k, call.v), step)
        except (ArithmeticError, ValueError):
            return np.full(like.shape, np.nan)
    if array.size == like.size:
        return array.reshape(like.shape)
    while array.ndim > like.ndim and array.shape[0] == 1:  # a mistake that changes the number of rows or keys
        array = array[0]
    return array


def call_of(case: dict[str, Any]) -> Call:
    """The call that a case means. Axes that it lacks have the size 1."""
    scale, causal, lengths = case.get("scale"), case.get("causal", False), case.get("lengths")
    rows, mask = case.get("rows", case.get("n")), case.get("mask")
    if "scores" in case:
        q, scale = _four(case["scores"]), 1.0
        k = np.broadcast_to(np.eye(q.shape[-1]), (*q.shape[:2], q.shape[-1], q.shape[-1]))
    elif rows is not None:
        entries = 1 if lengths is None else len(lengths)
        q, k = np.ones((entries, 1, rows, 1)), np.ones((entries, 1, case.get("keys", rows), 1))
        causal = case.get("causal", True)
    else:
        q, k = _four(case["q"]), _four(case["k"])
    return Call(
        q=q,
        k=k,
        v=_four(case["v"]) if "v" in case else k,
        mask=None if mask is None else _four(mask, bool),
        causal=bool(causal),
        scale=scale,
        lengths=lengths,
    )


def _four(array: Any, dtype: type = np.float64) -> np.ndarray:
    numbers: np.ndarray = np.asarray(array.detach() if hasattr(array, "detach") else array, dtype)
    return numbers.reshape((1,) * (4 - numbers.ndim) + numbers.shape)


class ObservedCase(Observed):
    """The learner's result of one case."""

    def __init__(self, grading: Grading, number: int, result: np.ndarray):
        self.call, self.step = call_of(grading.cases[number]), grading.exercise.computes
        super().__init__(str(number), meaning(self.call, LAWS), max(self.call.q.size * self.call.k.size, 1))
        self.actual, self.right, self.digits = result, grading.wanted[number], grading.digits

    @property
    def is_right(self) -> bool:
        """Whether the result is that of the law."""
        return agree(self.actual, self.right, self.digits)

    def mistaken(self, mistakes: Sequence[Mistake]) -> Arguments | None:
        """The arguments with these mistakes; None if none makes a difference, or has a number here, such as 1/√0."""
        try:
            return super().mistaken(mistakes)
        except (ArithmeticError, ValueError):
            return None

    def agrees(self, arguments: Arguments) -> bool:
        """Whether the law with these arguments gives the learner's result."""
        self.effort += 1
        found = result(self.step, self.call, arguments, self.right)
        return agree(found.astype(self.right.dtype), self.actual, self.digits)


def _by_law(grading: Grading, seen: Seen, pairs: bool) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The mistakes of the catalog that together explain all results, those of the exercise are tried first, and the
    others that give the same as a single one.
    """
    if not grading.exercise.computes:
        return (), ()
    numbers = [*seen.values(), *(grading.wanted[number] for number in seen)]
    if not all(isinstance(each, np.ndarray) for each in numbers):
        return (), ()
    cases = [ObservedCase(grading, number, each) for number, each in seen.items()]
    listed = [of_name(name) for name in grading.exercise.mistakes]
    catalog = [*listed, *(each for each in CATALOG if each not in listed)]
    wrong = [each for each in cases if not each.is_right]
    first = explain(wrong, [each for each in cases if each.is_right], catalog=catalog, together=True, pairs=pairs)[0]
    return tuple(each.name for each in first.mistakes), tuple(first.alike)
