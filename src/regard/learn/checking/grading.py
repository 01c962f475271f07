"""Grading: one exercise and one learner's file, step by step. It runs where the learner's code runs.

The steps of a check: the file is loaded; each case is run, smallest first: does it run, is the shape right, do the laws
hold, is the result right; after the first problem, the known mistakes are tried that explain it.
"""

from __future__ import annotations

import copy
import inspect
import io
import itertools
import linecache
import math
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np

from ...conformance.mistakes.catalog import CATALOG, of_name
from ..chapter import Exercise, WrongAnswer
from .cases import Case, cases_of, filled
from .law import computed
from .problem import Problem
from .values import agree, plain, shape_of, shown

__all__ = ["Broken", "Grading", "known_mistake"]

KEPT = 4000  # characters that a learner's code prints and that are shown
PAIRING = 1.0  # seconds in which pairs of mistakes are tried


class Broken(Exception):
    """A law that does not hold; the message says for which numbers."""


class Kept(io.StringIO):
    """What is printed, as far as it is shown."""

    def write(self, text: str) -> int:
        if self.tell() < KEPT:
            super().write(text[: KEPT - self.tell()])
        return len(text)


class Grading:
    """The check of one file."""

    def __init__(self, exercise: Exercise, path: Path):
        self.exercise, self.path = exercise, path
        self.printed = Kept()
        self.cases = cases_of(exercise)
        self.right = self._defined(exercise.solution, exercise.function, f"solution of {exercise.name}")
        self.wanted = [plain(self._result(self.right, copy.deepcopy(case))) for case in self.cases]
        self.results: dict[int, Any] = {}
        self.learner: Callable[..., Any] | None = None

    @property
    def digits(self) -> float:
        """The relative and absolute error that is rounding: the root of the roundoff of the numbers of the chapter."""
        return 2.0**-12 if self.exercise.needs else 2.0**-26

    # ---- steps -------------------------------------------------------------------------------------------------------

    def load(self) -> Problem | None:
        """Runs the learner's file."""
        name = self.exercise.function
        names: dict[str, Any] = {"__name__": "exercise", "__file__": str(self.path)}
        problem = self._executed(names)
        if problem:
            return problem
        found = names.get(name)
        if found is None:
            others = [each for each, value in names.items() if callable(value) and not each.startswith("_")]
            has = f"it defines {', '.join(others)}" if others else "it defines no function"
            return self._problem("runs", f"there is no {name} in {self.path.name}: {has}")
        if not callable(found):
            return self._problem("runs", f"{name} is not a function, but {type(found).__name__}")
        self.learner = found
        return None

    def _executed(self, names: dict[str, Any]) -> Problem | None:
        """Runs the file; its names are put into `names`."""
        source = self.path.read_text(encoding="utf-8-sig", errors="replace")
        linecache.checkcache(str(self.path))
        sys.path.insert(0, str(self.path.parent))
        try:
            self._run(lambda: exec(compile(source, str(self.path), "exec"), names))
        except SyntaxError as error:
            details = [f"line {error.lineno}: {(error.text or '').strip()}"] if error.lineno else []
            return self._problem("runs", f"this is not Python: {error.msg}", details)
        except BaseException as error:
            return self._raised(error, "the file cannot be run")
        return None

    def case(self, number: int) -> Problem | None:
        """One case: runs, shape, laws, result."""
        assert self.learner is not None
        arguments, wanted = self.cases[number], self.wanted[number]
        given = copy.deepcopy(arguments)
        try:
            value = self._run(lambda: self._result(self.learner, given))
            result = plain(value)
        except BaseException as error:
            return self._raised(error, f"{self._call(arguments)} raises an error", self._inputs(arguments))
        if any(not agree(plain(given[name]), plain(arguments[name]), 0) for name in arguments):
            what = f"{self.exercise.function} changes its inputs; a function of this kind returns something new"
            return self._problem("inputs", what, self._inputs(arguments))
        if value is None and wanted is not None:
            return self._problem("runs", f"{self.exercise.function} returns None: is there a `return`?")
        if shape_of(result) != shape_of(wanted):
            return self._wrong_shape(arguments, result, wanted)
        if not agree(self._safely(self.learner, arguments), result, self.digits):
            what = (
                f"{self.exercise.function} returns something else when it is called again: does it draw random numbers?"
            )
            return self._problem("random", what, self._inputs(arguments))
        for says, code in self.exercise.laws:
            problem = self._law(says, code, arguments)
            if problem:
                return problem
        self.results[number] = result
        if not agree(result, wanted, self.digits):
            details = [*self._inputs(arguments), f"returned   {shown(result)}", f"must be    {shown(wanted)}"]
            return self._problem("value", f"{self._call(arguments)} is not right", details)
        return None

    def explain(self, problem: Problem) -> Problem:
        """The problem with the known mistakes that give the learner's results in all cases."""
        seen = self._observed()
        if not seen:
            return problem
        matching = list(dict.fromkeys(self._matching(seen)))
        expected = {*self.exercise.mistakes, *(each.mistake for each in self.exercise.wrong)}
        matching = [name for name in matching if name in expected] or matching
        pairs: tuple[str, ...] = ()
        if not matching and self.exercise.computes:
            pairs = self._pair(seen)
        if not matching and not pairs:
            return problem
        named = [known_mistake(self.exercise, name) for name in (pairs or matching[:1])]
        return Problem(
            **{**vars(problem), "mistakes": pairs or tuple(matching[:1]), "alike": () if pairs else tuple(matching[1:])}
            | {
                "description": "; and ".join(each.description for each in named),
                "cause": "; ".join(dict.fromkeys(each.cause for each in named)),
                "fix": "; ".join(dict.fromkeys(each.fix for each in named)),
            }
        )

    # ---- known mistakes ----------------------------------------------------------------------------------------------

    def _observed(self) -> dict[int, Any]:
        """The learner's results of all cases that run; for the others, the error."""
        seen: dict[int, Any] = {}
        until = time.monotonic() + PAIRING
        for number, arguments in enumerate(self.cases):
            if time.monotonic() > until:
                break
            known = number in self.results
            seen[number] = self.results[number] if known else self._safely(self.learner, arguments)
        return seen

    def _safely(self, function: Any, arguments: Case) -> Any:
        """A result, or the type of the error."""
        try:
            return plain(self._run(lambda: self._result(function, copy.deepcopy(arguments))))
        except BaseException as error:
            return _Failed(type(error).__name__)

    def _matching(self, seen: dict[int, Any]) -> Iterator[str]:
        """The mistakes that explain all results: those of the chapter, then those of the catalog."""
        for wrong in self.exercise.wrong:
            function = self._defined(wrong.code, self.exercise.function, wrong.mistake)
            if all(self._same(self._safely(function, self.cases[number]), result) for number, result in seen.items()):
                yield wrong.mistake
        if self.exercise.computes:
            listed = [of_name(name) for name in self.exercise.mistakes]
            for mistake in [*listed, *(each for each in CATALOG if each not in listed)]:
                if self._explains((mistake,), seen):
                    yield mistake.name

    def _pair(self, seen: dict[int, Any]) -> tuple[str, ...]:
        until = time.monotonic() + PAIRING
        usable = [each for each in CATALOG if not each.alone and self._changes(each)]
        listed = [each for each in usable if each.name in self.exercise.mistakes]
        for first, second in itertools.chain(itertools.combinations(listed, 2), itertools.product(listed, usable)):
            if time.monotonic() > until:
                return ()
            if first is not second and self._explains((first, second), seen):
                return first.name, second.name
        return ()

    def _changes(self, mistake: Any) -> bool:
        return any(
            (found := computed(self.exercise.computes, case, (mistake,), wanted)) is not None
            and not agree(found, wanted, self.digits)
            for case, wanted in zip(self.cases, self.wanted)
            if isinstance(wanted, np.ndarray)
        )

    def _explains(self, mistakes: tuple[Any, ...], seen: dict[int, Any]) -> bool:
        differs = False
        for number, result in seen.items():
            wanted = self.wanted[number]
            if isinstance(result, _Failed) or not isinstance(wanted, np.ndarray):
                return False
            found = computed(self.exercise.computes, self.cases[number], mistakes, wanted)
            found = wanted if found is None else found.astype(wanted.dtype)
            if not agree(found, result, self.digits):
                return False
            differs = differs or not agree(found, wanted, self.digits)
        return differs

    def _same(self, first: Any, second: Any) -> bool:
        if isinstance(first, _Failed) or isinstance(second, _Failed):
            return isinstance(first, _Failed) and isinstance(second, _Failed) and first.kind == second.kind
        return agree(first, second, self.digits)

    # ---- running -----------------------------------------------------------------------------------------------------

    def _run(self, body: Callable[[], Any]) -> Any:
        with redirect_stdout(self.printed), redirect_stderr(self.printed), np.errstate(all="ignore"):
            return body()

    def _result(self, function: Any, arguments: Case) -> Any:
        """What is compared: the value of the function, or what the chapter's block leaves in `result`."""
        if not self.exercise.result:
            given = inspect.signature(self.right).bind(**arguments)  # learners may name parameters as they like
            return function(*given.args, **given.kwargs)
        names = self._names(function, arguments)
        exec(compile(self.exercise.result, f"result of {self.exercise.name}", "exec"), names)
        return names["result"]

    def _names(self, function: Any, arguments: Case) -> dict[str, Any]:
        names = {"np": np, "math": math, self.exercise.function: function, **arguments}
        if self.exercise.needs:
            names |= {"torch": sys.modules["torch"], "filled": filled}
        return names

    def _law(self, says: str, code: str, arguments: Case) -> Problem | None:
        """Whether a property holds for a case."""

        def same(first: Any, second: Any) -> None:
            first, second = plain(first), plain(second)
            if not agree(first, second, self.digits):
                raise Broken(f"{shown(first)} and {shown(second)} must be equal")

        def true(condition: Any, otherwise: str) -> None:
            if not condition:
                raise Broken(otherwise)

        names = self._names(self.learner, copy.deepcopy(arguments)) | {"same": same, "true": true}
        names["result"] = None
        try:
            self._run(lambda: exec(compile(code, "law", "exec"), names))
        except Broken as broken:
            return self._problem("law", f"it must hold that {says}", [*self._inputs(arguments), str(broken)], law=says)
        except BaseException as error:
            return self._raised(error, f"the check whether {says} fails", self._inputs(arguments))
        return None

    def _defined(self, code: str, name: str, where: str) -> Any:
        """The function that code of the chapter defines."""
        names: dict[str, Any] = {"__name__": "exercise"}
        self._run(lambda: exec(compile(code, where, "exec"), names))
        return names[name]

    # ---- words -------------------------------------------------------------------------------------------------------

    def _problem(self, kind: str, what: str, details: Any = (), law: str = "") -> Problem:
        return Problem(kind=kind, what=what, details=tuple(details), law=law, printed=self.printed.getvalue())

    def _call(self, arguments: Case) -> str:
        return f"{self.exercise.function}({', '.join(arguments)})"

    def _inputs(self, arguments: Case) -> list[str]:
        width = max(map(len, arguments), default=0)
        return [f"{name:{width}} = {shown(plain(value))}" for name, value in arguments.items()]

    def _wrong_shape(self, arguments: Case, result: Any, wanted: Any) -> Problem:
        what = f"the result has the shape {shape_of(result)} and must have {shape_of(wanted)}"
        if self.exercise.shape:
            what += f": {self.exercise.shape}"
        return self._problem("shape", what, self._inputs(arguments))

    def _raised(self, error: BaseException, what: str, details: Any = ()) -> Problem:
        """An error in the learner's code, with the line where it arose."""
        kind = "raises" if self.learner else "runs"
        if isinstance(error, (SystemExit, KeyboardInterrupt)):
            what = f"the code ends the program ({type(error).__name__}); a function returns instead"
            kind = "runs"
        lines = [
            f"line {each.lineno}: {each.line}"
            for each in traceback.extract_tb(error.__traceback__)
            if each.filename == str(self.path)
        ]
        said = _said(error)
        return self._problem(kind, what, [*details, said, *lines[-2:]])


class _Failed:
    """A case that raised an error of this kind."""

    def __init__(self, kind: str):
        self.kind = kind


def known_mistake(exercise: Exercise, name: str) -> WrongAnswer:
    """A mistake by name, with description, cause and fix: the chapter's own, or the catalog's."""
    for wrong in exercise.wrong:
        if wrong.mistake == name and wrong.cause:
            return wrong
    entry = of_name(name)
    return WrongAnswer(name, 0, "", entry.description, entry.cause, entry.fix)


def _said(error: BaseException) -> str:
    try:
        message = str(error).strip().splitlines()
    except BaseException:  # the learner's own exception may raise anything here
        message = []
    return f"{type(error).__name__}: {message[0]}" if message else type(error).__name__
