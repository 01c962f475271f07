"""Two mistakes at once: the changes of two wrong answers of a chapter, made to its solution together."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from difflib import SequenceMatcher
from functools import partial
from itertools import combinations, pairwise, takewhile
from typing import Any

from .grading import Failed, Function, Grading, agree, attempt

SEARCHING = 1.0  # seconds of work


def pair_of_mistakes(grading: Grading, seen: Mapping[int, Any]) -> tuple[str, ...]:
    """The two mistakes that together give results in all cases; empty if no two do. seen: the results by case.

    Errors are not compared: code with two mistakes may raise the same one for other reasons.
    """
    if any(isinstance(each, Failed) for each in seen.values()):
        return ()
    wrong = [at for at, each in sorted(seen.items()) if not agree(each, grading.wanted[at], grading.digits)]
    at = wrong[len(wrong) // 2]  # cases are in the order of their sizes: neither a trivial nor a slow one
    for mistakes, function in _pairs(grading):
        if grading.gives(function, {at: seen[at]}) and grading.gives(function, seen):
            return mistakes
    return ()


def _pairs(grading: Grading) -> Iterator[tuple[tuple[str, str], Function]]:
    exercise = grading.exercise
    until = time.process_time() + SEARCHING
    for first, second in combinations(exercise.wrong, 2):
        code = with_both(exercise.solution, first.code, second.code)
        if code is None or first.mistake == second.mistake or "while " in code:  # which may never end
            continue
        function, error, _ = attempt(partial(grading.defined, code))
        if error is None:
            yield (first.mistake, second.mistake), function
        if time.process_time() > until:
            return


def with_both(text: str, first: str, second: str) -> str | None:
    """A text with the changes that two others have; None if these overlap.

    >>> with_both("a + b\\nreturn c", "a - b\\nreturn c", "a + b\\nreturn c * 2")
    'a - b\\nreturn c * 2'
    >>> with_both("a + b", "a - b", "a / b") is None
    True
    """
    changes = sorted([*_changes(text, first), *_changes(text, second)], reverse=True)
    if any(end > later for (later, *_), (_, end, _) in pairwise(changes)):
        return None
    if len({start for start, *_ in changes}) < len(changes):
        return None
    for start, end, new in changes:
        text = text[:start] + new + text[end:]
    return text


def _changes(old: str, new: str) -> Iterator[tuple[int, int, str]]:
    """Where one text differs from another: from, to, and what is there instead; one part of each line."""
    lines, others = old.splitlines(True), new.splitlines(True)
    starts = [sum(map(len, lines[:number])) for number in range(len(lines) + 1)]
    for kind, first, last, begin, end in SequenceMatcher(None, lines, others, autojunk=False).get_opcodes():
        if kind == "equal":
            continue
        if last - first != end - begin:
            yield starts[first], starts[last], "".join(others[begin:end])
            continue
        for number, line, other in zip(range(first, last), lines[first:last], others[begin:end], strict=True):
            before = _alike(line, other)
            after = _alike(line[before:][::-1], other[before:][::-1])
            yield starts[number] + before, starts[number + 1] - after, other[before : len(other) - after]


def _alike(one: str, other: str) -> int:
    """With how many characters both texts begin."""
    return sum(1 for _ in takewhile(lambda both: both[0] == both[1], zip(one, other)))
