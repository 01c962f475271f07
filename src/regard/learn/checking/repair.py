"""Repair: the place of a learner's code where one change makes every case right, or leaves one mistake.

The results of the code with each change are compared with the right ones and with those of wrong answers: first in one
case, and where they agree there, in all.
"""

from __future__ import annotations

import ast
import re
import signal
import time
from collections.abc import Iterator, Mapping
from functools import partial
from types import FrameType
from typing import Any

from ...sandbox.messages import one_line
from ..running import executed
from .changes import changes
from .grading import MODULE, Function, Grading, agree, attempt, shape_of, shown

SEARCHING = 1.0  # seconds of work
CHANGED = "changed"  # the file that code with a change seems to come from
NAME = re.compile(r"(?<![.\w])[a-z_A-Z]\w*\b(?! *=[^=])")  # but not that of an argument


def wrong_place(grading: Grading, seen: Mapping[int, Any], known: list[tuple[str, Function]]) -> tuple[str, str]:
    """What is wrong in the learner's code, and what makes it right; empty texts if that was not found.

    seen: its results by case · known: mistakes in words, and functions that make them
    """
    # With a change, code may take long, such as one that multiplies whole numbers with themselves.
    before = signal.signal(signal.SIGPROF, _end)
    signal.setitimer(signal.ITIMER_PROF, 1.5 * SEARCHING, 0.01)
    try:
        return _search(grading, seen, known)
    except TimeoutError:
        return "", ""
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def _end(_: int, frame: FrameType | None) -> None:
    # Elsewhere, such as in a callback of the garbage collector, Python would print the error and go on.
    if frame and frame.f_code.co_filename == CHANGED:
        raise TimeoutError("the search took too long")


def _search(grading: Grading, seen: Mapping[int, Any], known: list[tuple[str, Function]]) -> tuple[str, str]:
    exercise, code = grading.exercise, grading.path.read_text("utf-8")
    right = {at: grading.wanted[at] for at in seen}
    wrong = [at for at, each in sorted(seen.items()) if not agree(each, right[at], grading.digits)]
    if "while " in code + exercise.solution:  # with a change, such a loop may never end
        return "", ""
    at = wrong[len(wrong) // 2]  # cases are in the order of their sizes: neither a trivial nor a slow one
    names = executed(exercise.solution, "solution", {"__name__": MODULE})

    def mark(value: Any) -> str:
        """What is equal for equal results; nothing of an error, or a result of another shape."""
        return shown(value) if shape_of(value) == shape_of(right[at]) else ""

    def outcome(function: Function) -> str:
        return mark(grading.outcome(function, grading.cases[at]))

    begin = time.process_time()
    outcome(grading.right)
    if time.process_time() - begin > SEARCHING / 20:  # of such results, too few would be compared
        return "", ""

    def changed(code: str, parts: list[str], seconds: float) -> Iterator[tuple[Any, str, Function]]:
        until, tree = time.process_time() + seconds, ast.parse(code)
        # Only definitions run.
        tree.body = [each for each in tree.body if not isinstance(each, (ast.Expr, ast.If, ast.For))]
        for place, says in changes(tree, parts):
            own = {**names, exercise.function: None}
            _, error, _ = attempt(partial(executed, tree, CHANGED, own))
            if error is None:
                yield place, says, own[exercise.function]
            if time.process_time() > until:
                return

    slips = [
        (f"what a right answer gives with {says} in the place of {_code(place)}", function)
        for place, says, function in changed(exercise.solution, [], SEARCHING / 4)
    ]
    marks = {outcome(function): (words, function) for words, function in [*reversed(slips), *known]}
    goal, now, found = mark(right[at]), mark(seen[at]), ("", "")
    if now in marks and grading.gives(marks[now][1], seen):
        found = marks[now][0], ""
    for place, says, function in changed(code, _parts(exercise.solution), SEARCHING):
        there, result = f"{_code(place)} in line {place.lineno}", outcome(function)
        if result == goal and grading.gives(function, right):
            return f"a mistake in one place: {there}", f"{says} there: then every case is right"
        if not found[0] and result in marks:
            words, other = marks[result]
            better = sum(grading.gives(function, {each: wanted}) for each, wanted in right.items())
            same = grading.gives(function, {each: grading.outcome(other, grading.cases[each]) for each in seen})
            if same and better > len(seen) - len(wrong):  # or the change only hides the mistakes
                found = f"two mistakes, one of them in {there}", f"{says} there; what is left is {words}"
    return found


def _parts(solution: str) -> list[str]:
    """The parts of a solution, each name replaced with its expression."""
    known: dict[str, str] = {}
    parts: set[str] = set()
    for statement in ast.walk(ast.parse(solution)):
        if isinstance(statement, (ast.Assign, ast.Return)) and statement.value:
            text = NAME.sub(lambda name: known.get(name[0], name[0]), ast.unparse(statement.value))
            inner = [ast.unparse(each) for each in ast.walk(ast.parse(text)) if isinstance(each, ast.expr)]
            parts |= {*inner[isinstance(statement, ast.Return) :]}  # not the whole answer
            match statement:
                case ast.Assign([ast.Name(name)]):
                    known[name] = f"({text})"
    return sorted(parts, key=len)


def _code(place: ast.AST) -> str:
    return f"`{one_line(ast.unparse(place))}`"
